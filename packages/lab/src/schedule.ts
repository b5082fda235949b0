import type { Arm, Plan, ProfileFile } from './plan.js';
import { deriveSeed, generator, shuffled } from './seed.js';

/** One load that a campaign is going to make. */
export interface ScheduledLoad {
  /** 1 for the first load of the campaign. */
  readonly number: number;
  readonly profile: ProfileFile;
  /** 1 for the first block, 0 for the rehearsal. */
  readonly block: number;
  readonly arm: Arm;
  /** The place of the arm in its block, 1 for the first. */
  readonly position: number;
  /** The same for all arms of a block, so that they differ by the arm only. */
  readonly linkSeed: number;
}

/** The block that is not counted: it warms the machine, and its loads may be watched in ways that slow them. */
export const REHEARSAL = 0;

/**
 * The loads of a plan in order: a rehearsal, that is each arm once on the first profile; then for each block each
 * profile, and in it each arm once, in an order drawn from the seed.
 *
 * Blocks are outermost, so that a machine that becomes slower in mid-campaign slows all profiles and arms alike, and
 * so that an interrupted campaign has whole blocks of everything.
 */
export function schedule(plan: Pick<Plan, 'profiles' | 'arms' | 'blocks'>, seed: number): ScheduledLoad[] {
  const loads: ScheduledLoad[] = [];
  for (let block = REHEARSAL; block <= plan.blocks; block++) {
    for (const profile of block === REHEARSAL ? plan.profiles.slice(0, 1) : plan.profiles) {
      const order = shuffled(plan.arms, generator(deriveSeed(seed, 'order', profile.name, block)));
      const linkSeed = deriveSeed(seed, 'link', profile.name, block);
      order.forEach((arm, index) => {
        loads.push({ number: loads.length + 1, profile, block, arm, position: index + 1, linkSeed });
      });
    }
  }
  return loads;
}
