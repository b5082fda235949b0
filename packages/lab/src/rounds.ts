import { whyLate, type LinkLateness } from './late.js';
import type { Sample } from './sample.js';
import { whyStarved } from './starved.js';

/** Whether two loads are of the same block on the same profile and page: those of all arms, which run one right after the other. */
export function isOfRound(one: Place, other: Place): boolean {
  return one.block === other.block && one.profile === other.profile && one.page === other.page;
}

type Place = Pick<Sample, 'block' | 'profile' | 'page'>;

/** Of a load, what its round is judged by. */
export type RoundLoad = Pick<Sample, 'machine'> & { readonly link?: LinkLateness };

/** What makes all loads of a round invalid, for all arms alike, which is known only when it has ended; nothing for one whose loads count. */
export function faultsOfRound(loads: readonly RoundLoad[]): string[] {
  const starved = whyStarved(loads.map(({ machine }) => machine));
  const late = whyLate(loads.flatMap(({ link }) => link ?? []));
  return [starved, late].filter((fault) => fault !== undefined);
}
