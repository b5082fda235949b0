import { partnerOf } from './partners.js';
import { enough } from './stopping.js';
import { pairUp, type BlockTime, type Pair } from './pairs.js';
import { AnsweredProtocols, warmthOf, type Warmth } from '../run/cold-servers.js';
import type { Plan } from '../campaign/plan.js';
import { faultsOfRound, type RoundLoad } from '../campaign/rounds.js';
import type { Sample } from '../samples/sample.js';
import { REHEARSAL, type ScheduledLoad } from '../campaign/schedule.js';
import { deriveSeed } from '../campaign/seed.js';

/** The part of a load that the stopping rule needs. */
export interface LoadFacts
  extends RoundLoad, Pick<Sample, 'profile' | 'page' | 'arm' | 'block' | 'valid' | 'times'> {
  readonly warmth: Warmth;
}

export function pickMade(sample: Sample): LoadFacts {
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
 * Decides which profiles and pages have enough blocks. It considers whole blocks only, and its
 * decision depends on the loads alone: a resumed campaign stops where an uninterrupted one would
 * have.
 */
export class StoppingRule {
  /** Loads by profile and page, then by block. */
  readonly #rounds = new Map<string, Map<number, LoadFacts[]>>();
  /** First block that is no longer needed, by profile and page. */
  readonly #enough = new Map<string, number>();

  constructor(
    private readonly plan: Pick<Plan, 'arms' | 'baseline' | 'blocks'>,
    private readonly seed: number,
    before: Iterable<LoadFacts>,
  ) {
    for (const made of before) this.add(made);
  }

  add(made: LoadFacts): void {
    const place = placeOf(made.profile, made.page);
    const rounds = this.#rounds.get(place) ?? new Map<number, LoadFacts[]>();
    this.#rounds.set(place, rounds.set(made.block, [...(rounds.get(made.block) ?? []), made]));
  }

  /**
   * Returns whether a load can be skipped, because its profile and page had enough blocks before.
   */
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

  /** Returns the pairs of each arm with its partner over the blocks before this one. */
  #pairs(place: string, before: number): Pair[][] {
    const rounds = [...(this.#rounds.get(place) ?? [])].filter(
      ([block]) => block !== REHEARSAL && block < before,
    );
    const counted = rounds.flatMap(([, loads]) => (faultsOfRound(loads).length === 0 ? loads : []));
    const answered = this.#answered(before);
    const valid = counted.filter(
      (made) => made.valid && answered.whyCold(made.warmth) === undefined,
    );
    const timesOf = (name: string): BlockTime[] =>
      valid
        .filter(({ arm }) => arm === name)
        .map(({ block, times }) => ({ block, seconds: times.load ?? Infinity }));
    const { arms, baseline } = this.plan;
    return arms.flatMap((arm) => {
      const base = partnerOf(arm, arms, baseline);
      return base === undefined ? [] : [[...pairUp(timesOf(base), timesOf(arm.name)).pairs]];
    });
  }

  /** Returns what was known before the block, so that a resumed campaign decides the same. */
  #answered(before: number): AnsweredProtocols {
    const answered = new AnsweredProtocols();
    const rounds = [...this.#rounds.values()].flatMap((blocks) => [...blocks]);
    for (const { warmth } of rounds.flatMap(([block, loads]) => (block < before ? loads : [])))
      answered.add(warmth);
    return answered;
  }
}

function placeOf(profile: string, page: string): string {
  return `${profile}\n${page}`;
}
