/**
 * The figures of a table cell, over the valid loads of one arm on one profile.
 *
 * A load that did not complete has no time, but it happened: it counts as slower than each load
 * that completed. So a percentile that falls on such a load is `censored`, and only the mean is
 * over the completed loads alone.
 */

/** A time in seconds, or `censored` if the load at this rank did not complete. */
export type Figure = { readonly seconds: number } | 'censored';

export interface Summary {
  /** Number of loads that count: the valid ones, completed or not. */
  readonly n: number;
  readonly completed: number;
  /** Undefined for `n` = 0, as are all figures. */
  readonly median?: Figure;
  /** Over the completed loads only. */
  readonly mean?: number;
  readonly p90?: Figure;
  readonly p99?: Figure;
  readonly min?: Figure;
  readonly max?: Figure;
}

/** Summarizes load times in seconds; `undefined` stands for a load that did not complete. */
export function summarise(times: readonly (number | undefined)[]): Summary {
  const completed = times.filter((time) => time !== undefined).sort((a, b) => a - b);
  const n = times.length;
  if (n === 0) return { n, completed: 0 };
  const at = (rank: number): Figure => {
    const seconds = completed[rank - 1];
    return seconds === undefined ? 'censored' : { seconds };
  };
  return {
    n,
    completed: completed.length,
    median: midpoint(at(Math.ceil(n / 2)), at(Math.floor(n / 2) + 1)),
    ...(completed.length > 0 && {
      mean: completed.reduce((sum, time) => sum + time, 0) / completed.length,
    }),
    p90: at(nearestRank(90, n)),
    p99: at(nearestRank(99, n)),
    min: at(1),
    max: at(n),
  };
}

/**
 * Returns the rank of a percentile among `n` sorted values by the nearest-rank definition: the
 * smallest rank with at least that percentage of the values at or below it.
 */
export function nearestRank(percent: number, n: number): number {
  return Math.max(1, Math.ceil((percent * n) / 100));
}

/** Describes a percentile of few values by its rank: "largest of 5", "2nd largest of 150". */
export function describeRank(percent: number, n: number): string {
  const fromTop = n - nearestRank(percent, n) + 1;
  return fromTop === 1 ? `largest of ${n}` : `${ordinal(fromTop)} largest of ${n}`;
}

/** Returns the number of values from which a percentile is below the largest of them. */
export function distinctFrom(percent: number): number {
  return Math.ceil(100 / (100 - percent));
}

function midpoint(low: Figure, high: Figure): Figure {
  if (low === 'censored' || high === 'censored') return 'censored';
  return { seconds: (low.seconds + high.seconds) / 2 };
}

function ordinal(n: number): string {
  const suffix = ['th', 'st', 'nd', 'rd'];
  const teens = n % 100 >= 11 && n % 100 <= 13;
  return `${n}${(teens ? undefined : suffix[n % 10]) ?? 'th'}`;
}

/** A density curve: pairs of a value and the estimated density there. */
export type Density = readonly (readonly [value: number, density: number])[];

const CURVE_POINTS = 64;

/**
 * Returns a Gaussian kernel density estimate between the smallest and the largest value, with
 * Silverman's bandwidth.
 *
 * Returns undefined for fewer than three different values, for which a curve would be misleading.
 */
export function density(values: readonly number[]): Density | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted.at(-1)];
  if (low === undefined || high === undefined || new Set(sorted).size < 3) return undefined;
  const bandwidth = silvermanBandwidth(sorted);
  return Array.from({ length: CURVE_POINTS }, (_, index) => {
    const value = low + ((high - low) * index) / (CURVE_POINTS - 1);
    const sum = sorted.reduce(
      (total, each) => total + Math.exp(-0.5 * ((value - each) / bandwidth) ** 2),
      0,
    );
    return [value, sum / (sorted.length * bandwidth * Math.sqrt(2 * Math.PI))] as const;
  });
}

/** Returns 0.9 × min(standard deviation, interquartile range / 1.34) × n^(-1/5). */
function silvermanBandwidth(sorted: readonly number[]): number {
  const n = sorted.length;
  const mean = sorted.reduce((sum, value) => sum + value, 0) / n;
  const deviation = Math.sqrt(
    sorted.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1),
  );
  const quartile = (percent: number): number => sorted[nearestRank(percent, n) - 1] as number;
  const range = (quartile(75) - quartile(25)) / 1.34;
  return 0.9 * Math.min(deviation, range > 0 ? range : deviation) * n ** -0.2;
}
