import { partnerOf } from './partners.js';
import { enough } from './stopping.js';
import { pairUp, type BlockTime, type Pair } from './pairs.js';
import { Answered, warmthOf, type Warmth } from '../cold.js';
import type { Plan } from '../plan.js';
import { faultsOfRound, type RoundLoad } from '../rounds.js';
import type { Sample } from '../sample.js';
import { REHEARSAL, type ScheduledLoad } from '../schedule.js';
import { deriveSeed } from '../seed.js';

/** What the rule has to know of a load that was made. */
export interface Made extends RoundLoad, Pick<Sample, 'profile' | 'page' | 'arm' | 'block' | 'valid' | 'times'> {
  readonly warmth: Warmth;
}

export function pickMade(sample: Sample): Made {
  const { profile, page, arm, block, valid, times, machine, link } = sample;
  const judgedBy = link && {
    kept_deadlines: link.kept_deadlines,
    lateness_us: link.lateness_us,
    lateness_bound_us: link.lateness_bound_us,
  };
  const ofRound = { ...(machine && { machine }), ...(judgedBy && { link: judgedBy }) };
  return { profile, page, arm, block, valid, times, ...ofRound, warmth: warmthOf(sample) };
}

/**
 * Says which profiles and pages have blocks enough. It looks at whole blocks only, and decides the same from the same
 * loads: a campaign that is resumed stops where one that ran through would have.
 */
export class StoppingRule {
  /** The loads by profile and page, and by block in them. */
  readonly #rounds = new Map<string, Map<number, Made[]>>();
  /** The block before which a profile and page had enough. */
  readonly #enough = new Map<string, number>();

  constructor(
    private readonly plan: Pick<Plan, 'arms' | 'baseline' | 'blocks'>,
    private readonly seed: number,
    before: Iterable<Made>,
  ) {
    for (const made of before) this.add(made);
  }

  add(made: Made): void {
    const place = placeOf(made.profile, made.page);
    const rounds = this.#rounds.get(place) ?? new Map<number, Made[]>();
    this.#rounds.set(place, rounds.set(made.block, [...(rounds.get(made.block) ?? []), made]));
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
    const rounds = [...(this.#rounds.get(place) ?? [])].filter(([block]) => block !== REHEARSAL && block < before);
    const counted = rounds.flatMap(([, loads]) => (faultsOfRound(loads).length === 0 ? loads : []));
    const answered = this.#answered(before);
    const valid = counted.filter((made) => made.valid && answered.whyCold(made.warmth) === undefined);
    const timesOf = (name: string): BlockTime[] =>
      valid.filter(({ arm }) => arm === name).map(({ block, times }) => ({ block, seconds: times.load ?? Infinity }));
    const { arms, baseline } = this.plan;
    return arms.flatMap((arm) => {
      const base = partnerOf(arm, arms, baseline);
      return base === undefined ? [] : [[...pairUp(timesOf(base), timesOf(arm.name)).pairs]];
    });
  }

  /** By what was known before the block, so that a resumed campaign decides as the other. */
  #answered(before: number): Answered {
    const answered = new Answered();
    const rounds = [...this.#rounds.values()].flatMap((blocks) => [...blocks]);
    for (const { warmth } of rounds.flatMap(([block, loads]) => (block < before ? loads : []))) answered.add(warmth);
    return answered;
  }
}

function placeOf(profile: string, page: string): string {
  return `${profile}\n${page}`;
}
