import { latenessFault, type LinkLateness } from './lateness.js';
import type { Sample } from '../samples/sample.js';
import { starvationFault } from './starvation.js';

/**
 * Returns whether two loads are of the same round: the loads of all arms in one block on one
 * profile and page, which run one right after the other.
 */
export function isOfRound(one: RoundKey, other: RoundKey): boolean {
  return one.block === other.block && one.profile === other.profile && one.page === other.page;
}

type RoundKey = Pick<Sample, 'block' | 'profile' | 'page'>;

/** The part of a load that its round is judged by. */
export type RoundLoad = Pick<Sample, 'machine'> & { readonly link?: LinkLateness };

/**
 * Returns the faults that invalidate all loads of a round, for all arms alike; known only when the
 * round has ended. Empty if its loads count.
 */
export function faultsOfRound(loads: readonly RoundLoad[]): string[] {
  const starved = starvationFault(loads.map(({ machine }) => machine));
  const late = latenessFault(loads.flatMap(({ link }) => link ?? []));
  return [starved, late].filter((fault) => fault !== undefined);
}
