import assert from 'node:assert/strict';
import test from 'node:test';
import { bootstrap, MIN_BLOCKS } from '../src/statistics/bootstrap.js';
import { detectableRatio } from '../src/statistics/detectable.js';
import { twoModes } from '../src/statistics/modes.js';
import { boundedFrom, quantileRanks } from '../src/statistics/quantile-interval.js';
import { mannWhitney, wilcoxonSignedRank } from '../src/statistics/rank-tests.js';
import { hodgesLehmann, median, once, percentile, ratio } from '../src/statistics/weighted.js';
import { draws, times } from './draws.js';

/**
 * Follows the definition literally: all pairs of all copies; infinite values of opposite signs
 * cancel.
 */
function walshMedian(values: readonly number[], weights: Uint32Array): number | undefined {
  const copies = values.flatMap((value, at) => Array<number>(weights[at] ?? 0).fill(value));
  const means = copies.flatMap((one, at) =>
    copies.slice(at).map((other) => (one === -other && one !== 0 ? 0 : (one + other) / 2)),
  );
  means.sort((a, b) => (a === b ? 0 : a < b ? -1 : 1));
  const [low, high] = [means[Math.ceil(means.length / 2) - 1], means[Math.floor(means.length / 2)]];
  if (low === undefined || high === undefined) return undefined;
  return low === high ? low : low === -high ? 0 : (low + high) / 2;
}

test('Hodges-Lehmann estimate is the median of all pairwise means, however often each value is drawn', () => {
  const random = draws(1);
  for (let round = 0; round < 2000; round++) {
    const coarse = round % 2 === 0;
    const values = times(1 + (round % 11), () => {
      const kind = round % 3 === 0 ? random.uniform() : 1;
      if (kind < 0.2) return kind < 0.1 ? Infinity : -Infinity;
      const value = 10 * random.uniform() - 5;
      return coarse ? Math.round(value) : value;
    });
    const estimate = hodgesLehmann(values);
    for (const weights of [
      once(values.length),
      Uint32Array.from(values, () => Math.floor(3 * random.uniform())),
    ]) {
      const wanted = walshMedian(values, weights);
      if (wanted === undefined) continue;
      const found = estimate(weights);
      assert.ok(
        found === wanted || Math.abs(found - wanted) < 1e-12,
        `${values.join(' ')}: ${found}, not ${wanted}`,
      );
    }
  }
});

test('figures of a resample equal those of the copies written out', () => {
  const weights = Uint32Array.of(0, 3, 1, 2);
  assert.equal(median([9, 1, 5, 2])(weights), 1.5);
  assert.equal(percentile([9, 1, 5, 2], 90)(weights), 5);
  assert.equal(median([9, Infinity, 5, 2])(weights), Infinity);
});

test('ratio of two figures that are both unbounded is no effect', () => {
  assert.equal(ratio(median([Infinity]), median([Infinity]))(once(1)), 1);
  assert.equal(ratio(median([Infinity]), median([2]))(once(1)), Infinity);
  assert.equal(ratio(median([2]), median([Infinity]))(once(1)), 0);
});

test('interval is the same for the same seed and differs for another', () => {
  const random = draws(2);
  const values = times(30, () => random.logNormal(0.3));
  const interval = (seed: number): unknown =>
    bootstrap(30, { it: median(values) }, seed).it.interval;
  assert.deepEqual(interval(1), interval(1));
  const means = (seed: number): unknown =>
    bootstrap(30, { it: hodgesLehmann(values) }, seed).it.interval;
  assert.notDeepEqual(means(1), means(2));
});

test('interval of identical figures falls back to percentiles and says so', () => {
  const { interval } = bootstrap(10, { it: median(times(10, () => 3)) }, 1).it;
  assert.deepEqual(interval, { low: 3, high: 3, method: 'percentile' });
});

test('too few blocks have an estimate and no interval', () => {
  assert.deepEqual(bootstrap(MIN_BLOCKS - 1, { it: median([1, 2, 3, 4, 5]) }, 1).it, {
    value: 3,
    interval: undefined,
  });
  assert.ok(bootstrap(MIN_BLOCKS, { it: median([1, 2, 3, 4, 5, 6]) }, 1).it.interval);
});

test('95 % intervals contain the truth in about 95 % of all samples', () => {
  const random = draws(3);
  const rounds = 100;
  let missed = 0;
  for (let round = 0; round < rounds; round++) {
    const differences = times(30, () => random.normal());
    const interval = bootstrap(30, { it: hodgesLehmann(differences) }, round).it.interval;
    if (interval === undefined || interval.low > 0 || interval.high < 0) missed += 1;
  }
  // One in twenty or slightly more is 5 to 7 of 100; the binomial distribution has about 1 %
  // outside 1 to 13.
  assert.ok(missed >= 1 && missed <= 13, String(missed));
});

test('test of differences ignores loads that never completed in both arms', () => {
  assert.equal(
    wilcoxonSignedRank([0.1, 0.2, -0.3, 0, 0]).p,
    wilcoxonSignedRank([0.1, 0.2, -0.3]).p,
  );
  assert.deepEqual(wilcoxonSignedRank([0, 0]), { p: 1, exact: true });
});

test('infinite differences rank above all others and tie with each other', () => {
  const finite = [0.1, -0.2, 0.3, 0.4, -0.5, 0.6];
  assert.equal(
    wilcoxonSignedRank([...finite, Infinity, -Infinity]).p,
    wilcoxonSignedRank([...finite, 7, -7]).p,
  );
  assert.equal(
    mannWhitney([1, 2, Infinity], [3, Infinity, 4]).p,
    mannWhitney([1, 2, 9], [3, 9, 4]).p,
  );
});

test('ties hidden by binary fractions are ties', () => {
  // 0.3 - 0.2 and 0.2 - 0.1 are not the same number.
  assert.equal(wilcoxonSignedRank([0.3 - 0.2, -(0.2 - 0.1)]).p, 1);
});

test('normal approximation continues the exact count without a step', () => {
  const random = draws(4);
  const many = times(50, () => random.normal() + 0.4);
  const counted = wilcoxonSignedRank(many);
  const approximated = wilcoxonSignedRank([...many, 1e-6]);
  assert.ok(counted.exact && !approximated.exact);
  assert.ok(Math.abs(Math.log(approximated.p / counted.p)) < 0.3, `${counted.p} ${approximated.p}`);
});

test('p99 has an upper bound from 368 loads on', () => {
  assert.equal(boundedFrom(99), 368);
  assert.equal(quantileRanks(367, 99).high, undefined);
  assert.equal(quantileRanks(368, 99).high, 368);
  assert.deepEqual(quantileRanks(50, 50), { low: 18, high: 33 });
  assert.deepEqual(quantileRanks(5, 50), { low: undefined, high: undefined });
});

for (const [name, alpha] of [
  ['one comparison', 0.05],
  ['twelve comparisons', 0.05 / 12],
] as const) {
  for (const blocks of [20, 50]) {
    test(`detectable difference is found with 80 % power: ${blocks} blocks, ${name}`, () => {
      const random = draws(5);
      const spread = 0.14;
      const logs = times(60, () => {
        const found = detectableRatio(
          times(blocks, () => spread * random.normal()),
          alpha,
        );
        return Math.log(found ?? NaN);
      });
      const shift = logs.reduce((sum, log) => sum + log, 0) / logs.length;
      const rounds = 1000;
      const hits = times(
        rounds,
        () => wilcoxonSignedRank(times(blocks, () => shift + spread * random.normal())).p,
      ).filter((p) => p <= alpha).length;
      assert.ok(
        hits / rounds > 0.76 && hits / rounds < 0.89,
        `${Math.exp(shift)} was found in ${hits} of ${rounds}`,
      );
    });
  }
}

test('nothing is detectable with too few blocks for the level, or with unbounded spread', () => {
  const random = draws(6);
  const ratios = times(8, () => 0.1 * random.normal());
  assert.ok(detectableRatio(ratios, 0.05));
  assert.equal(detectableRatio(ratios, 0.05 / 12), undefined);
  assert.equal(
    detectableRatio([...ratios, Infinity, -Infinity, Infinity, -Infinity], 0.05),
    undefined,
  );
});

test('a tenth of the loads a second later is a mode of its own', () => {
  const random = draws(7);
  const found = twoModes(
    times(50, (at) => 0.6 * random.logNormal(0.08) + (at % 10 === 3 ? 1.02 : 0)),
  );
  assert.ok(found);
  assert.equal(found.slowLoads, 5);
  assert.ok(Math.abs(found.slow - found.fast - 1.02) < 0.1);
});

test('times with one mode are rarely taken for two', () => {
  const random = draws(8);
  const shapes = [
    (): number => random.logNormal(0.6),
    (): number => -Math.log(random.uniform()),
    (): number => random.uniform(),
  ];
  let named = 0;
  for (const shape of shapes) {
    for (let round = 0; round < 200; round++)
      if (twoModes(times(20 + (round % 80), shape)) !== undefined) named += 1;
  }
  assert.ok(named <= 6, `${named} of 600`);
});

test('stragglers and few loads are no mode', () => {
  const random = draws(9);
  const body = times(48, () => random.logNormal(0.05));
  assert.equal(twoModes([...body, 5, 5.01]), undefined);
  assert.equal(twoModes([1, 1.01, 1.02, 3, 3.01, 3.02]), undefined);
  assert.equal(twoModes(times(20, () => 1)), undefined);
});
