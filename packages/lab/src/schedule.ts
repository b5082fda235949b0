import { balancedOrders, balancedPeriod } from './latin-square.js';
import type { Arm, Plan, ProfileFile } from './plan.js';
import { deriveSeed, generator, shuffled } from './seed.js';

/** One load that a campaign may make. */
export interface ScheduledLoad {
  /** 1 for the first load of the campaign. It stays the same however often the campaign is interrupted. */
  readonly number: number;
  readonly profile: ProfileFile;
  /** The page's name. */
  readonly page: string;
  /** 1 for the first block, 0 for the rehearsal. */
  readonly block: number;
  readonly arm: Arm;
  /** The place of the arm among those of its profile and page, 1 for the first. */
  readonly position: number;
  /** The same for all arms of a block on a profile and page, so that they differ by the arm only. */
  readonly linkSeed: number;
}

/** The block that is not counted: it warms the machine, and its loads are watched in ways that slow them. */
export const REHEARSAL = 0;

export type Scheduled = Pick<Plan, 'profiles' | 'pages' | 'arms'>;

/** The loads of a plan, block after block from the rehearsal on. */
export function schedule(plan: Scheduled, lastBlock: number, seed: number): ScheduledLoad[][] {
  const perBlock = plan.profiles.length * plan.pages.length * plan.arms.length;
  return Array.from({ length: lastBlock + 1 }, (_, block) => loadsOf(plan, block, block * perBlock, seed));
}

/**
 * The loads of one block: each arm on each profile and page once, the profiles and pages in an order drawn from the
 * seed, and in each of them the arms in another one.
 *
 * Blocks are outermost, so that a machine that becomes slower in mid-campaign slows all profiles, pages and arms alike,
 * and so that an interrupted campaign has whole blocks of everything. The arms that are compared run one right after
 * the other.
 */
function loadsOf(plan: Scheduled, block: number, before: number, seed: number): ScheduledLoad[] {
  const places = plan.profiles.flatMap((profile) => plan.pages.map(({ name: page }) => ({ profile, page })));
  const loads: ScheduledLoad[] = [];
  for (const { profile, page } of shuffled(places, generator(deriveSeed(seed, 'places', block)))) {
    const order = orderOf(plan.arms, block, seed, profile.name, page);
    const linkSeed = deriveSeed(seed, 'link', profile.name, page, block);
    order.forEach((arm, index) => {
      loads.push({ number: before + loads.length + 1, profile, page, block, arm, position: index + 1, linkSeed });
    });
  }
  return loads;
}

/**
 * The order of the arms in one block of a profile and page. Over each as many blocks as there are arms, from the first block
 * on, each arm is equally often at each place: orders drawn one by one would over few blocks give one arm the first place,
 * and a machine that is cold or busy, more often than another.
 */
function orderOf(arms: readonly Arm[], block: number, seed: number, ...place: readonly string[]): Arm[] {
  if (block === REHEARSAL) return shuffled(arms, generator(deriveSeed(seed, 'order', ...place, block)));
  const period = balancedPeriod(arms.length);
  const [turn, row] = [Math.floor((block - 1) / period), (block - 1) % period];
  return balancedOrders(arms, generator(deriveSeed(seed, 'orders', ...place, turn)))[row] as Arm[];
}
