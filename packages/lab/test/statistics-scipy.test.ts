import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { compare, type Pair } from '../src/compare/pairs.js';
import { controlVerdict } from '../src/compare/control.js';
import { bootstrap } from '../src/statistics/bootstrap.js';
import { quantileRanks, shareInterval } from '../src/statistics/quantile-interval.js';
import { holm } from '../src/statistics/rank-tests.js';
import { mean, ratio } from '../src/statistics/weighted.js';
import { packageFolder } from './places.js';

/**
 * SciPy's results for the same inputs, generated and kept current by
 * tests/e2e/test_lab_statistics.py.
 */
interface Fixture {
  readonly cases: readonly {
    readonly name: string;
    readonly base: readonly (number | null)[];
    readonly arm: readonly (number | null)[];
    readonly expected: {
      readonly wilcoxon: number;
      readonly mannWhitney: number;
      readonly shift: number;
      readonly medianRatio?: number;
      readonly intervals?: Readonly<
        Record<'medianRatio' | 'shift' | 'meanRatio', readonly [number, number]>
      >;
    };
  }[];
  readonly quantileRanks: readonly { n: number; percent: number; low?: number; high?: number }[];
  readonly shares: readonly { hits: number; n: number; low: number; high: number }[];
  readonly controls: readonly { intervals: number; allowed: number }[];
  readonly holm: { readonly ps: readonly number[]; readonly adjusted: readonly number[] };
}

const fixture = JSON.parse(
  readFileSync(join(packageFolder, 'test/fixtures/statistics.json'), 'utf8'),
) as Fixture;

/**
 * Bootstraps with different random numbers differ; a median that takes discrete values differs by
 * one step.
 */
const INTERVAL_TOLERANCE = 0.1;
/** A mean has no steps. */
const SMOOTH_TOLERANCE = 0.02;

function near(actual: number, wanted: number, tolerance = 1e-9): void {
  assert.ok(Math.abs(actual - wanted) <= tolerance, `${actual} is not ${wanted} (to ${tolerance})`);
}

for (const { name, base, arm, expected } of fixture.cases) {
  const pairs: Pair[] = base.map((seconds, block) => ({
    block,
    base: seconds ?? Infinity,
    arm: arm[block] ?? Infinity,
  }));

  test(`tests and estimates equal SciPy's: ${name}`, () => {
    const found = compare(pairs, 1);
    near(found.wilcoxon.p, expected.wilcoxon);
    near(found.mannWhitney.p, expected.mannWhitney);
    near(found.shift.value, expected.shift);
    if (expected.medianRatio !== undefined)
      near(found.medianRatio?.value ?? NaN, expected.medianRatio);
  });

  const { intervals } = expected;
  if (intervals !== undefined) {
    test(`intervals equal SciPy's BCa bootstrap to a tenth of their width: ${name}`, () => {
      const found = compare(pairs, 1);
      for (const figure of ['medianRatio', 'shift'] as const) {
        const [low, high] = intervals[figure];
        const interval = found[figure]?.interval;
        assert.equal(interval?.method, 'bca');
        near(interval.low, low, INTERVAL_TOLERANCE * (high - low));
        near(interval.high, high, INTERVAL_TOLERANCE * (high - low));
      }
      const means = ratio(
        mean(pairs.map((pair) => pair.arm)),
        mean(pairs.map((pair) => pair.base)),
      );
      const { interval } = bootstrap(pairs.length, { means }, 1).means;
      const [low, high] = intervals.meanRatio;
      near(interval?.low ?? NaN, low, SMOOTH_TOLERANCE * (high - low));
      near(interval?.high ?? NaN, high, SMOOTH_TOLERANCE * (high - low));
    });
  }
}

test("ranks that enclose quantiles equal SciPy's binomial distribution", () => {
  for (const { n, percent, low, high } of fixture.quantileRanks) {
    assert.deepEqual(quantileRanks(n, percent), { low, high }, `p${percent} of ${n}`);
  }
});

test("intervals of shares equal SciPy's exact ones", () => {
  for (const { hits, n, low, high } of fixture.shares) {
    const found = shareInterval(hits, n);
    near(found.low, low);
    near(found.high, high);
  }
});

test("number of control intervals that may exclude no effect by chance equals SciPy's binomial quantile", () => {
  for (const { intervals, allowed } of fixture.controls) {
    assert.equal(controlVerdict({ intervals, excluding: allowed }).allowed, allowed);
    assert.equal(controlVerdict({ intervals, excluding: allowed }).verdict, 'good');
    assert.equal(controlVerdict({ intervals, excluding: allowed + 1 }).verdict, 'repair-the-bench');
  }
});

test("Holm's adjusted p follows its definition", () => {
  holm(fixture.holm.ps).forEach((p, at) => {
    near(p, fixture.holm.adjusted[at] ?? NaN);
  });
});
