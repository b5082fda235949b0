import type { LinkReport } from './link-report.js';

/** So many of the packets of a round may be late, and one in any case. */
const MOST_LATE = 0.01;

/** So many of one load's, and one in any case: among many arms all late packets of one load are few of the round's. */
const MOST_LATE_OF_ONE = 0.05;

/** What the link of a load says of its own lateness. */
export type LinkLateness = Pick<LinkReport, 'kept_deadlines' | 'lateness_us' | 'lateness_bound_us'>;

/**
 * Why the link was too late in a round; undefined where it was not. A packet is late if the link delivered it later than a share of the
 * round trip after its time.
 *
 * The round is judged as a whole, and its loads are invalid together. A protocol with more packets, or one whose endpoints need more of
 * the processors, has late packets more often: judged one by one, those of its loads that were slow for that would be left out.
 */
export function whyLate(links: readonly LinkLateness[]): string | undefined {
  const counted = links.flatMap(({ lateness_us: { late, packets } }) =>
    late === undefined || packets === undefined ? [] : [{ late, packets }],
  );
  // Reports of before late packets were counted.
  if (counted.length < links.length && links.some((link) => !link.kept_deadlines)) {
    return 'the link missed its deadlines in a load of this block';
  }
  const late = sum(counted.map((each) => each.late));
  const packets = sum(counted.map((each) => each.packets));
  const worst = counted.find((each) => isTooMany(each, MOST_LATE_OF_ONE));
  if (!isTooMany({ late, packets }, MOST_LATE) && worst === undefined) return undefined;
  const bound = ((links[0]?.lateness_bound_us ?? 0) / 1000).toFixed(2);
  const one = worst === undefined ? '' : `, and ${worst.late} of the ${worst.packets} of one load`;
  return `the link missed its deadlines: ${late} of the ${packets} packets in this block's loads${one} were more than ${bound} ms late`;
}

function isTooMany({ late, packets }: { late: number; packets: number }, most: number): boolean {
  return late > Math.max(1, most * packets);
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
