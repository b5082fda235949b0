import assert from 'node:assert/strict';
import test from 'node:test';
import {
  density,
  distinctFrom,
  nearestRank,
  describeRank,
  summarise,
} from '../src/statistics/figures.js';

const seconds = (value: number): { seconds: number } => ({ seconds: value });

test('percentiles are the nearest rank of the sorted values', () => {
  // 1 to 100, shuffled by a stride that is coprime to 100.
  const times = Array.from({ length: 100 }, (_, index) => ((index * 37) % 100) + 1);
  const summary = summarise(times);
  assert.deepEqual(summary.p90, seconds(90));
  assert.deepEqual(summary.p99, seconds(99));
  assert.deepEqual(summary.min, seconds(1));
  assert.deepEqual(summary.max, seconds(100));
  assert.deepEqual(summary.median, seconds(50.5));
  assert.equal(summary.mean, 50.5);
});

test('median of an odd number is its middle value', () => {
  assert.deepEqual(summarise([5, 1, 9]).median, seconds(5));
});

test('p99 of few values is the largest and says so', () => {
  assert.deepEqual(summarise([3, 1, 2, 5, 4]).p99, seconds(5));
  assert.equal(describeRank(99, 5), 'largest of 5');
  assert.equal(describeRank(99, 99), 'largest of 99');
  assert.equal(describeRank(99, 100), '2nd largest of 100');
  assert.equal(describeRank(99, 1200), '13th largest of 1200');
});

test('percentile is below the maximum from the documented n on', () => {
  for (const percent of [50, 90, 99]) {
    const from = distinctFrom(percent);
    assert.ok(nearestRank(percent, from) < from);
    assert.equal(nearestRank(percent, from - 1), from - 1);
  }
});

test('load without a time ranks as the slowest', () => {
  const summary = summarise([1, undefined, 2, 3, undefined]);
  assert.equal(summary.n, 5);
  assert.equal(summary.completed, 3);
  assert.deepEqual(summary.median, seconds(3));
  assert.equal(summary.mean, 2);
  assert.equal(summary.p90, 'censored');
  assert.equal(summary.max, 'censored');
  assert.deepEqual(summary.min, seconds(1));
});

test('median that needs a missing time is censored', () => {
  assert.equal(summarise([1, undefined]).median, 'censored');
  assert.equal(summarise([undefined]).min, 'censored');
  assert.equal(summarise([undefined]).mean, undefined);
});

test('no values give no figures', () => {
  assert.deepEqual(summarise([]), { n: 0, completed: 0 });
});

test('density integrates to nearly one over values far from the cutoff', () => {
  // Normal quantiles: little of the kernel's mass is beyond the outermost of 2,000 values.
  const values = Array.from({ length: 2000 }, (_, index) =>
    Math.tan(Math.PI * ((index + 0.5) / 2000 - 0.5) * 0.9),
  );
  const curve = density(values);
  assert.ok(curve);
  const step = (curve[1]?.[0] ?? 0) - (curve[0]?.[0] ?? 0);
  const sum = curve.reduce((total, [, share]) => total + share * step, 0);
  assert.ok(Math.abs(sum - 1) < 0.02, String(sum));
});

test('density peaks at the values', () => {
  const curve = density([1, 1.01, 1.02, 1.03, 5]);
  const peak = curve?.reduce((best, point) => (point[1] > best[1] ? point : best));
  assert.ok(peak !== undefined && peak[0] < 1.5, JSON.stringify(peak));
});

test('density of fewer than three different values is undefined', () => {
  assert.equal(density([]), undefined);
  assert.equal(density([2, 2, 2, 2]), undefined);
  assert.equal(density([1, 2, 2]), undefined);
});
