import type { Campaign } from '../campaign/campaign-file.js';
import { medianRatio, pairUp, statisticOf, tooFew, type BlockTime } from '../compare/pairs.js';
import { MIN_CONTROL_BLOCKS } from '../compare/compare-campaign.js';
import { controlVerdict, excludesNoEffect, type Control } from '../compare/control.js';
import { deriveSeed } from '../campaign/seed.js';
import type { Sample } from '../samples/sample.js';
import { REHEARSAL } from '../campaign/schedule.js';
import { bootstrap, type Estimate, type Interval } from '../statistics/bootstrap.js';
import type { Statistic } from '../statistics/weighted.js';
import { METRICS, type Criterion, type Effect, type Metric } from './criterion.js';
import type { PublishedRow, Study, Term, Verdict } from './criterion.js';

/** A criterion with its result. */
export interface Evaluated {
  readonly criterion: Criterion;
  /** Number of blocks in which each load that the effect needs is valid. */
  readonly blocks: number;
  /** Undefined without such a block. */
  readonly effect: Estimate | undefined;
  readonly verdict: Verdict;
}

/** The measured figures for one published row. */
export interface MeasuredRow {
  readonly row: PublishedRow;
  /** Undefined without a valid load. A figure that falls on an incomplete load is infinite. */
  readonly figures: Readonly<Record<keyof PublishedRow['figures'], number>> | undefined;
  readonly valid: number;
  readonly completed: number;
  readonly invalid: number;
}

/** All results of a campaign for a study. */
export interface Reproduction {
  readonly study: Study;
  readonly rows: readonly MeasuredRow[];
  readonly criteria: readonly Evaluated[];
  /** Number of criteria of links that the campaign does not include. */
  readonly leftOut: number;
  /** The A/A controls: whether the bench shows differences where there are none. */
  readonly control: Control;
}

/** Returns a load's time by metric, in seconds; undefined if it was not reached. */
export function metricOf({ times, browser }: Sample, metric: Metric): number | undefined {
  if (metric !== 'requestStart') return times[metric];
  const start = browser?.navigation?.requestStart ?? 0;
  return start > 0 ? start / 1000 : undefined;
}

/** The loads of a campaign, reduced to a few numbers each. */
export class Loads {
  readonly #times = new Map<string, BlockTime[]>();
  readonly #invalid = new Map<string, number>();

  static async read(samples: AsyncIterable<Sample>): Promise<Loads> {
    const loads = new Loads();
    for await (const sample of samples) loads.add(sample);
    return loads;
  }

  add(sample: Sample): void {
    if (sample.block === REHEARSAL) return;
    const cell = keyOf(sample);
    if (!sample.valid) {
      this.#invalid.set(cell, (this.#invalid.get(cell) ?? 0) + 1);
      return;
    }
    for (const metric of METRICS) {
      const key = `${cell}\n${metric}`;
      const times = this.#times.get(key) ?? [];
      times.push({ block: sample.block, seconds: metricOf(sample, metric) ?? Infinity });
      this.#times.set(key, times);
    }
  }

  /** Returns the valid loads of a cell. */
  times(cell: Pick<Term, 'profile' | 'page' | 'arm' | 'metric'>): readonly BlockTime[] {
    return this.#times.get(`${keyOf(cell)}\n${cell.metric}`) ?? [];
  }

  invalid(cell: Pick<Term, 'profile' | 'page' | 'arm'>): number {
    return this.#invalid.get(keyOf(cell)) ?? 0;
  }
}

/**
 * Judges a study by the loads of a campaign. `study` is the one of the criteria file, not of this
 * program.
 */
export function evaluate(study: Study, campaign: Campaign, loads: Loads): Reproduction {
  const profiles = new Set(campaign.profiles.map(({ name }) => name));
  const criteria = study.criteria.filter(({ effect }) =>
    termsOf(effect).every(({ profile }) => profiles.has(profile)),
  );
  return {
    study,
    rows: study.published
      .filter(({ profile }) => profiles.has(profile))
      .map((row) => measuredRow(row, loads)),
    criteria: criteria.map((criterion) => evaluateOne(criterion, loads, campaign.seed)),
    leftOut: study.criteria.length - criteria.length,
    control: controlOf(campaign, loads),
  };
}

function evaluateOne(criterion: Criterion, loads: Loads, seed: number): Evaluated {
  const { effect, claim, id } = criterion;
  const aligned = align(termsOf(effect), loads);
  const blocks = aligned[0]?.length ?? 0;
  if (blocks === 0)
    return { criterion, blocks, effect: undefined, verdict: claim ? 'undecided' : 'reported' };
  const statistic = statisticOfEffect(effect, aligned);
  const estimate = bootstrap(blocks, { it: statistic }, deriveSeed(seed, 'criterion', id)).it;
  return {
    criterion,
    blocks,
    effect: estimate,
    verdict: verdictOf(claim, tooFew(blocks) ? undefined : estimate.interval),
  };
}

/** Returns the verdict from the interval's position relative to the claim. */
export function verdictOf(claim: Criterion['claim'], interval: Interval | undefined): Verdict {
  if (claim === undefined) return 'reported';
  if (interval === undefined) return 'undecided';
  const { low = -Infinity, high = Infinity } = claim;
  if (interval.low >= low && interval.high <= high) return 'reproduced';
  return interval.high < low || interval.low > high ? 'not reproduced' : 'undecided';
}

function termsOf(effect: Effect): Term[] {
  return effect.kind === 'ratio' ? [...effect.over, ...effect.under] : [effect.of, effect.less];
}

/**
 * Returns the times of each term over the blocks that all of them have, in the order of the blocks.
 */
function align(terms: readonly Term[], loads: Loads): number[][] {
  const each = terms.map(
    (term) => new Map(loads.times(term).map(({ block, seconds }) => [block, seconds])),
  );
  const common = [...(each[0]?.keys() ?? [])].filter((block) =>
    each.every((times) => times.has(block)),
  );
  common.sort((a, b) => a - b);
  return each.map((times) => common.map((block) => times.get(block) as number));
}

function statisticOfEffect(effect: Effect, times: readonly number[][]): Statistic {
  const statistics = termsOf(effect).map(({ figure }, at) => statisticOf(figure, times[at] ?? []));
  if (effect.kind === 'difference') {
    const [of, less] = statistics as [Statistic, Statistic];
    return (weights) => {
      const [first, second] = [of(weights), less(weights)];
      // Two loads that did not complete are not known to differ.
      return first === second ? 0 : (first - second) / effect.unitSeconds;
    };
  }
  const product = (factors: readonly Statistic[]): Statistic => {
    return (weights) => factors.reduce((so, factor) => so * factor(weights), 1);
  };
  const [over, under] = [
    product(statistics.slice(0, effect.over.length)),
    product(statistics.slice(effect.over.length)),
  ];
  return (weights) => {
    const [top, bottom] = [over(weights), under(weights)];
    return top === bottom ? 1 : top / bottom;
  };
}

function measuredRow(row: PublishedRow, loads: Loads): MeasuredRow {
  const seconds = loads.times(row).map((time) => time.seconds);
  const sorted = [...seconds].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const completed = sorted.filter(Number.isFinite);
  const counts = {
    valid: seconds.length,
    completed: completed.length,
    invalid: loads.invalid(row),
  };
  if (sorted.length === 0) return { row, figures: undefined, ...counts };
  const all = new Uint32Array(sorted.length).fill(1);
  const figures = {
    median: statisticOf('median', sorted)(all),
    mean: statisticOf('mean', sorted)(all),
    p90: articlePercentile(sorted, 90),
    p99: articlePercentile(sorted, 99),
    min: sorted[0] as number,
    max: sorted.at(-1) as number,
  };
  return { row, figures, ...counts };
}

/**
 * Returns a percentile as Kiwee's notebook defines it: the largest of the first `int(p n)` values.
 * For n = 50, p99 is the second largest.
 */
export function articlePercentile(sorted: readonly number[], percent: number): number {
  return sorted[Math.max(1, Math.floor((percent * sorted.length) / 100)) - 1] as number;
}

/** Compares the load times of each A/A arm with its original. */
function controlOf(campaign: Campaign, loads: Loads): Control {
  let [intervals, excluding] = [0, 0];
  for (const { name: profile } of campaign.profiles) {
    for (const { name: page } of campaign.pages) {
      for (const { name: arm, repeats } of campaign.arms) {
        if (repeats === undefined) continue;
        const cell = { profile, page, metric: 'load' } as const;
        const { pairs } = pairUp(
          loads.times({ ...cell, arm: repeats }),
          loads.times({ ...cell, arm }),
        );
        if (pairs.length < MIN_CONTROL_BLOCKS) continue;
        intervals += 1;
        if (
          excludesNoEffect(
            medianRatio(pairs, deriveSeed(campaign.seed, 'control', profile, page, arm)),
          )
        )
          excluding += 1;
      }
    }
  }
  return controlVerdict({ intervals, excluding });
}

function keyOf({ profile, page, arm }: { profile: string; page: string; arm: string }): string {
  return `${profile}\n${page}\n${arm}`;
}
