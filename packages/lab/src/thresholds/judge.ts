import type { ComparedCell, Metric } from '../compare/compare-campaign.js';
import { pairUp, statisticOf } from '../compare/pairs.js';
import { deriveSeed } from '../campaign/seed.js';
import { bootstrap, MIN_BLOCKS } from '../statistics/bootstrap.js';
import { quantileRanks, shareInterval } from '../statistics/quantile-interval.js';
import { ascending } from '../statistics/rank-tests.js';
import { once, ratio } from '../statistics/weighted.js';
import type { ArmFigure, Comparator, Threshold } from './parse.js';

/** The result of a threshold on one profile and page, in one line. */
export interface Finding {
  /**
   * `broken` fails the campaign; `unsure` means that there were too few blocks for a threshold with
   * `surely`.
   */
  readonly kind: 'broken' | 'unsure';
  readonly line: string;
}

interface Ends {
  readonly low: number;
  readonly high: number;
}

/**
 * Judges a threshold on each profile and page that it applies to, and returns a line for each where
 * it is broken.
 *
 * A threshold that cannot be judged because an arm has no valid load is broken: a check must not
 * pass by measuring nothing. A mean is infinite if one of its loads did not complete.
 */
export function judge(
  threshold: Threshold,
  cells: readonly ComparedCell[],
  seed: number,
): Finding[] {
  const { figure, limit, place } = threshold;
  return cells
    .filter(({ arm, profile, page }) => {
      const here =
        place === undefined || (place.profile === profile && (place.page ?? page) === page);
      return arm === figure.arm && here;
    })
    .flatMap((cell) => {
      const other =
        limit.kind === 'constant'
          ? undefined
          : cells.find(
              ({ arm, profile, page }) =>
                arm === limit.figure.arm && profile === cell.profile && page === cell.page,
            );
      return judgeHere(threshold, cell, other, seed) ?? [];
    });
}

function judgeHere(
  threshold: Threshold,
  cell: ComparedCell,
  other: ComparedCell | undefined,
  seed: number,
): Finding | undefined {
  const { text, surely, figure, comparator, limit } = threshold;
  const where = `${text}${threshold.place === undefined ? ` on ${placeOf(cell)}` : ''}`;
  const value = valueOf(figure, cell);
  if (value === undefined) return unjudged(where, figure);
  const factor = limit.kind === 'constant' ? 1 : limit.factor;
  const bound = limit.kind === 'constant' ? limit.value : other && valueOf(limit.figure, other);
  if (bound === undefined) return unjudged(where, limit.kind === 'figure' ? limit.figure : figure);
  const late =
    lateOf(figure, cell) ??
    (limit.kind === 'figure' && other ? lateOf(limit.figure, other) : undefined);
  if (late !== undefined) return { kind: 'broken', line: `${where}: ${late}` };
  // Against a constant the figure has the interval, against another arm the ratio of the two.
  const ends = !surely
    ? undefined
    : limit.kind === 'constant'
      ? intervalOf(figure, cell, seed)
      : other && ratioInterval(figure, cell, limit.figure, other, seed);
  if (surely && ends === undefined) {
    return {
      kind: 'unsure',
      line: `${where}: \`surely\` requires at least ${MIN_BLOCKS} blocks`,
    };
  }
  const broken =
    ends === undefined
      ? holds(value, comparator, factor * bound)
      : holdsSurely(ends, comparator, limit.kind === 'constant' ? limit.value : factor);
  if (!broken) return undefined;
  const scale = limit.kind === 'figure' && factor !== 1 ? `${factor} * ` : '';
  const interval =
    ends === undefined
      ? ''
      : `, 95 % of the ${limit.kind === 'constant' ? 'figure' : 'ratio'}: ${number(ends.low, figure, limit.kind)} to ${number(ends.high, figure, limit.kind)}`;
  const seen = `${number(value, figure)} ${comparator} ${scale}${number(bound, figure)}`;
  return { kind: 'broken', line: `${where}: ${seen}${interval}` };
}

function unjudged(where: string, { arm, metric }: ArmFigure): Finding {
  const what = metric === 'load' ? 'valid load' : `valid load with a ${metric}`;
  return { kind: 'broken', line: `${where}: ${arm} has no ${what}` };
}

/** Returns why a largest paint is unknown. */
function lateOf({ arm, metric }: ArmFigure, { latePaints = [] }: ComparedCell): string | undefined {
  if (metric !== 'lcp' || latePaints.length === 0) return undefined;
  return `larger paints came too late to count in ${latePaints.length} loads of ${arm}`;
}

function valueOf({ metric, statistic }: ArmFigure, cell: ComparedCell): number | undefined {
  const times = secondsOf(cell, metric);
  if (times.length === 0) return undefined;
  if (statistic === 'completed') return times.filter(Number.isFinite).length / times.length;
  return statisticOf(statistic, times)(once(times.length));
}

function intervalOf(
  { metric, statistic }: ArmFigure,
  cell: ComparedCell,
  seed: number,
): Ends | undefined {
  const times = secondsOf(cell, metric).sort(ascending);
  const n = times.length;
  switch (statistic) {
    case 'completed':
      return shareInterval(times.filter(Number.isFinite).length, n);
    case 'mean':
      return bootstrap(n, { it: statisticOf('mean', times) }, deriveSeed(seed, 'threshold')).it
        .interval;
    case 'median':
    case 'p90':
    case 'p99': {
      if (n < MIN_BLOCKS) return undefined;
      const { low, high } = quantileRanks(n, { median: 50, p90: 90, p99: 99 }[statistic]);
      return {
        low: low === undefined ? 0 : (times[low - 1] ?? Infinity),
        high: high === undefined ? Infinity : (times[high - 1] ?? Infinity),
      };
    }
  }
}

/**
 * Computes the interval over blocks with a valid load of both arms, so that common influences of a
 * block cancel.
 */
function ratioInterval(
  figure: ArmFigure,
  cell: ComparedCell,
  otherFigure: ArmFigure,
  other: ComparedCell,
  seed: number,
): Ends | undefined {
  if (figure.statistic === 'completed' || otherFigure.statistic === 'completed') return undefined;
  const { pairs } = pairUp(other.times[otherFigure.metric], cell.times[figure.metric]);
  const over = statisticOf(
    figure.statistic,
    pairs.map(({ arm }) => arm),
  );
  const under = statisticOf(
    otherFigure.statistic,
    pairs.map(({ base }) => base),
  );
  return bootstrap(pairs.length, { it: ratio(over, under) }, deriveSeed(seed, 'threshold')).it
    .interval;
}

function holds(value: number, comparator: Comparator, limit: number): boolean {
  switch (comparator) {
    case '<':
      return value < limit;
    case '<=':
      return value <= limit;
    case '>':
      return value > limit;
    case '>=':
      return value >= limit;
  }
}

function holdsSurely({ low, high }: Ends, comparator: Comparator, limit: number): boolean {
  return holds(comparator.startsWith('>') ? low : high, comparator, limit);
}

function secondsOf(cell: ComparedCell, metric: Metric): number[] {
  return cell.times[metric].map(({ seconds }) => seconds);
}

function number(
  value: number,
  { statistic }: ArmFigure,
  kind: 'constant' | 'figure' = 'constant',
): string {
  if (value === Infinity) return 'none';
  if (kind === 'figure') return value.toFixed(3);
  return statistic === 'completed' ? `${(100 * value).toFixed(1)} %` : `${value.toFixed(4)} s`;
}

function placeOf({ profile, page }: ComparedCell): string {
  return page === undefined ? profile : `${profile}/${page}`;
}
