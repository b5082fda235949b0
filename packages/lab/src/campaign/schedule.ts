import { balancedOrders, balancedPeriod } from './latin-square.js';
import type { Arm, Plan, ProfileFile } from './plan.js';
import { deriveSeed, generator, shuffled } from './seed.js';

/** One load that a campaign may make. */
export interface ScheduledLoad {
  /** Starts at 1. Interruptions of the campaign do not change it. */
  readonly number: number;
  readonly profile: ProfileFile;
  /** Name of the page. */
  readonly page: string;
  /** Starts at 1; 0 is the rehearsal. */
  readonly block: number;
  readonly arm: Arm;
  /** Position of the arm among those of its profile and page, from 1. */
  readonly position: number;
  /**
   * The same for all arms of a block on a profile and page, so that they differ by the arm only.
   */
  readonly linkSeed: number;
}

/**
 * The block that is not counted: it warms up the machine, and its loads are recorded in ways that
 * slow them.
 */
export const REHEARSAL = 0;

export type Scheduled = Pick<Plan, 'profiles' | 'pages' | 'arms'>;

/** Returns the loads of a plan block by block, starting with the rehearsal. */
export function schedule(plan: Scheduled, lastBlock: number, seed: number): ScheduledLoad[][] {
  const perBlock = plan.profiles.length * plan.pages.length * plan.arms.length;
  return Array.from({ length: lastBlock + 1 }, (_, block) =>
    loadsOf(plan, block, block * perBlock, seed),
  );
}

/**
 * Returns the loads of one block: each arm on each profile and page once. The order of profiles and
 * pages and the order of the arms within each are drawn from the seed.
 *
 * Blocks are outermost, so that a machine that slows down in mid-campaign affects all profiles,
 * pages and arms alike, and an interrupted campaign has whole blocks of everything. Compared arms
 * run one right after the other.
 */
function loadsOf(plan: Scheduled, block: number, before: number, seed: number): ScheduledLoad[] {
  const places = plan.profiles.flatMap((profile) =>
    plan.pages.map(({ name: page }) => ({ profile, page })),
  );
  const loads: ScheduledLoad[] = [];
  for (const { profile, page } of shuffled(places, generator(deriveSeed(seed, 'places', block)))) {
    const order = orderOf(plan.arms, block, seed, profile.name, page);
    const linkSeed = deriveSeed(seed, 'link', profile.name, page, block);
    order.forEach((arm, index) => {
      loads.push({
        number: before + loads.length + 1,
        profile,
        page,
        block,
        arm,
        position: index + 1,
        linkSeed,
      });
    });
  }
  return loads;
}

/**
 * Returns the order of the arms in one block of a profile and page. Over every as many blocks as
 * there are arms, from the first block on, each arm is equally often in each position. Independent
 * random orders would, over few blocks, put one arm first, on a cold or busy machine, more often
 * than another.
 */
function orderOf(
  arms: readonly Arm[],
  block: number,
  seed: number,
  ...place: readonly string[]
): Arm[] {
  if (block === REHEARSAL)
    return shuffled(arms, generator(deriveSeed(seed, 'order', ...place, block)));
  const period = balancedPeriod(arms.length);
  const [turn, row] = [Math.floor((block - 1) / period), (block - 1) % period];
  return balancedOrders(arms, generator(deriveSeed(seed, 'orders', ...place, turn)))[row] as Arm[];
}
