import { partnerOf } from './partners.js';
import { enough } from './stopping.js';
import { pairUp, type BlockTime, type Pair } from './pairs.js';
import type { MachineCpu } from '../machine-cpu.js';
import type { Plan } from '../plan.js';
import type { Sample } from '../sample.js';
import type { ScheduledLoad } from '../schedule.js';
import { deriveSeed } from '../seed.js';
import { whyStarved } from '../starved.js';

/** What the rule has to know of a load that was made. */
export type Made = Pick<Sample, 'profile' | 'page' | 'arm' | 'block' | 'valid' | 'times' | 'machine'>;

export function pickMade({ profile, page, arm, block, valid, times, machine }: Sample): Made {
  return { profile, page, arm, block, valid, times, ...(machine && { machine }) };
}

/**
 * Says which profiles and pages have blocks enough. It looks at whole blocks only, and decides the same from the same
 * loads: a campaign that is resumed stops where one that ran through would have.
 */
export class StoppingRule {
  /** The times of valid loads by profile and page, and by arm in them. */
  readonly #times = new Map<string, Map<string, BlockTime[]>>();
  /** The machine under each load, by profile and page, and by block in them. */
  readonly #machines = new Map<string, Map<number, MachineCpu[]>>();
  /** The block before which a profile and page had enough. */
  readonly #enough = new Map<string, number>();

  constructor(
    private readonly plan: Pick<Plan, 'arms' | 'baseline' | 'blocks'>,
    private readonly seed: number,
    before: Iterable<Made>,
  ) {
    for (const made of before) this.add(made);
  }

  add({ profile, page, arm, block, valid, times, machine }: Made): void {
    if (block === 0) return;
    const place = placeOf(profile, page);
    const machines = this.#machines.get(place) ?? new Map<number, MachineCpu[]>();
    this.#machines.set(place, machines);
    if (machine !== undefined) machines.set(block, [...(machines.get(block) ?? []), machine]);
    if (!valid) return;
    const arms = this.#times.get(place) ?? new Map<string, BlockTime[]>();
    this.#times.set(place, arms);
    arms.set(arm, [...(arms.get(arm) ?? []), { block, seconds: times.load ?? Infinity }]);
  }

  /** Whether a load need not be made, since its profile and page had enough before its block. */
  isEnough({ profile, page, block }: Pick<ScheduledLoad, 'profile' | 'page' | 'block'>): boolean {
    const { min, max, intervalPercent } = this.plan.blocks;
    if (block > (profile.blocks ?? max)) return true;
    if (intervalPercent === undefined || block === 0) return false;
    const place = placeOf(profile.name, page);
    const known = this.#enough.get(place);
    if (known !== undefined) return block >= known;
    const rule = { min, max, intervalPercent };
    const seed = deriveSeed(this.seed, 'stopping', place);
    if (!enough(this.#pairs(place, block), block - 1, rule, seed)) return false;
    this.#enough.set(place, block);
    return true;
  }

  /** Each arm against what it is compared with, over the blocks before this one. */
  #pairs(place: string, before: number): Pair[][] {
    const rounds = [...(this.#machines.get(place) ?? [])];
    const starved = new Set(rounds.flatMap(([block, machines]) => (whyStarved(machines) === undefined ? [] : [block])));
    const timesOf = (arm: string): BlockTime[] =>
      (this.#times.get(place)?.get(arm) ?? []).filter(({ block }) => block < before && !starved.has(block));
    const { arms, baseline } = this.plan;
    return arms.flatMap((arm) => {
      const base = partnerOf(arm, arms, baseline);
      return base === undefined ? [] : [[...pairUp(timesOf(base), timesOf(arm.name)).pairs]];
    });
  }
}

function placeOf(profile: string, page: string): string {
  return `${profile}\n${page}`;
}
