import type { LinkReport } from '../run/link-report.js';

/** Maximum share of a round's packets that may be late; one late packet is always allowed. */
const MAX_LATE_SHARE = 0.01;

/**
 * Maximum share of one load's packets that may be late, one always allowed. With many arms, one
 * load's late packets are a small share of the round's.
 */
const MAX_LATE_SHARE_OF_ONE = 0.05;

/** The part of a link report about lateness. */
export type LinkLateness = Pick<LinkReport, 'kept_deadlines' | 'lateness_us' | 'lateness_bound_us'>;

/**
 * Returns why the link was too late in a round; undefined if it was not. A packet is late if the
 * link delivered it later than a share of the round trip after its time.
 *
 * The round is judged as a whole, and all its loads become invalid together. A protocol that sends
 * more packets, or whose endpoints need more processor time, has late packets more often. Judging
 * loads one by one would exclude exactly its slow loads.
 */
export function latenessFault(links: readonly LinkLateness[]): string | undefined {
  const counted = links.flatMap(({ lateness_us: { late, packets } }) =>
    late === undefined || packets === undefined ? [] : [{ late, packets }],
  );
  // Reports from before late packets were counted.
  if (counted.length < links.length && links.some((link) => !link.kept_deadlines)) {
    return 'the link missed its deadlines in a load of this block';
  }
  const late = sum(counted.map((each) => each.late));
  const packets = sum(counted.map((each) => each.packets));
  const worst = counted.find((each) => isTooMany(each, MAX_LATE_SHARE_OF_ONE));
  if (!isTooMany({ late, packets }, MAX_LATE_SHARE) && worst === undefined) return undefined;
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
