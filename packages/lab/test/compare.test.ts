import assert from 'node:assert/strict';
import test from 'node:test';
import {
  compareCampaign,
  type ArmComparison,
  type ComparedCell,
} from '../src/compare/compare-campaign.js';
import { pooledControl } from '../src/compare/control.js';
import { enough } from '../src/compare/stopping.js';
import { compare, difference, pairUp, type BlockTime, type Pair } from '../src/compare/pairs.js';
import { comparisonRows } from '../src/compare/comparison-table.js';
import {
  describeControl,
  describeDisagreement,
  describeVerdict,
} from '../src/compare/comparison-text.js';
import { draws, times } from './draws.js';

const random = draws(11);
const at = (blocks: readonly number[], seconds: (block: number) => number): BlockTime[] =>
  blocks.map((block) => ({ block, seconds: seconds(block) }));
const blocks = (count: number): number[] => times(count, (index) => index + 1);
const noisy =
  (median: number, spread = 0.05) =>
  (): number =>
    median * random.logNormal(spread);

function cell(arm: string, load: BlockTime[], profile = 'fibre', repeats?: string): ComparedCell {
  return {
    profile,
    arm,
    ...(repeats !== undefined && { repeats }),
    times: { load, firstByte: [], lcp: [] },
  };
}

test('block with an invalid load of one arm has no pair and is counted', () => {
  const { pairs, incompleteBlocks } = pairUp(
    at([1, 2, 4], (block) => block),
    at([2, 3, 4], (block) => 2 * block),
  );
  assert.deepEqual(pairs, [
    { block: 2, base: 2, arm: 4 },
    { block: 4, base: 4, arm: 8 },
  ]);
  assert.equal(incompleteBlocks, 2);
});

test('load that did not complete differs infinitely from one that did, and not from another incomplete one', () => {
  assert.equal(difference({ block: 1, base: 2, arm: Infinity }), Infinity);
  assert.equal(difference({ block: 1, base: Infinity, arm: 2 }), -Infinity);
  assert.equal(difference({ block: 1, base: Infinity, arm: Infinity }), 0);
});

test('arm whose loads all time out is slower without bound', () => {
  const found = compare(
    times(10, (block): Pair => ({ block, base: 1 + block / 100, arm: Infinity })),
    1,
  );
  assert.equal(found.medianRatio?.value, Infinity);
  assert.deepEqual(found.medianRatio.interval, {
    low: Infinity,
    high: Infinity,
    method: 'percentile',
  });
  assert.equal(found.shift.value, Infinity);
  assert.ok(found.wilcoxon.p < 0.01);
});

test('interval that includes loads that did not complete has no upper bound', () => {
  const pairs = times(20, (block): Pair => ({
    block,
    base: noisy(1)(),
    arm: block % 5 < 2 ? Infinity : noisy(1)(),
  }));
  const { medianRatio, p90Ratio } = compare(pairs, 1);
  assert.ok(medianRatio?.interval && Number.isFinite(medianRatio.value));
  assert.ok(Number.isFinite(medianRatio.interval.low));
  assert.equal(medianRatio.interval.high, Infinity);
  assert.equal(p90Ratio?.value, Infinity);
});

test('two arms that never complete have no ratio, shift or difference', () => {
  const found = compare(
    times(8, (block) => ({ block, base: Infinity, arm: Infinity })),
    1,
  );
  assert.equal(found.medianRatio, undefined);
  assert.equal(found.shift.value, 0);
  assert.equal(found.wilcoxon.p, 1);
});

test('planted difference is found only on the profile that has it', () => {
  const all = blocks(30);
  const { base, comparisons } = compareCampaign(
    [
      cell('h2', at(all, noisy(1)), 'fibre'),
      cell('h3', at(all, noisy(1)), 'fibre'),
      cell('h2', at(all, noisy(1.3)), 'lte'),
      cell('h3', at(all, noisy(1)), 'lte'),
    ],
    undefined,
    5,
  );
  assert.equal(base, 'h2');
  const [fibre, lte] = comparisons.filter(({ metric }) => metric === 'load');
  assert.equal(lte?.verdict.kind, 'faster');
  assert.ok(lte.medianRatio && Math.abs(lte.medianRatio.value - 1 / 1.3) < 0.05);
  assert.equal(fibre?.verdict.kind, 'none-detected');
  assert.ok(
    fibre.verdict.ratio !== undefined && fibre.verdict.ratio > 1.02 && fibre.verdict.ratio < 1.1,
  );
});

test('row whose ratio and shift point in different directions is explained, and other rows are not', () => {
  // The first arm is slightly faster in four blocks, and much slower in the other three.
  const [base, arm] = [
    [1, 1, 1, 1, 9, 9, 9],
    [1.2, 1.2, 1.2, 1.2, 2, 2, 2],
  ];
  const compared = (one: number[] = [], other: number[] = []): ArmComparison | undefined =>
    compareCampaign(
      [
        cell(
          'h2',
          at(blocks(7), (block) => one[block - 1] ?? 0),
        ),
        cell(
          'h3',
          at(blocks(7), (block) => other[block - 1] ?? 0),
        ),
      ],
      undefined,
      1,
    ).comparisons[0];
  const apart = compared(base, arm);
  assert.ok(apart && (apart.medianRatio?.value ?? 0) > 1 && apart.shift.value < 0);
  const words =
    'Ratio and shift point in different directions: h3 has the slower median over all blocks, but by the differences within ' +
    'blocks it is the faster one. The ratio compares the median loads of the two arms, the shift the two loads of each block. Neither is a verdict.';
  assert.equal(describeDisagreement(apart), words);
  assert.ok(comparisonRows([apart], true)[0]?.at(-1)?.endsWith(words));
  assert.match(
    describeDisagreement(compared(arm, base) as ArmComparison) ?? '',
    /faster median .* it is the slower one/,
  );
  const decided = { ...apart, verdict: { kind: 'faster' } } as const;
  assert.match(describeDisagreement(decided) ?? '', /The verdict is based on the blocks\.$/);
  const alike = compared(
    base,
    base.map((seconds) => seconds + 0.1),
  );
  assert.equal(alike && describeDisagreement(alike), undefined);
  // A difference that is displayed as none has no direction.
  const rounded = { ...apart, medianRatio: { value: 1.0004, interval: undefined } };
  assert.equal(describeDisagreement(rounded), undefined);
});

test('baseline can be another arm than the first', () => {
  const cells = ['h1', 'h2', 'h3'].map((arm) => cell(arm, at(blocks(8), noisy(1))));
  const { comparisons } = compareCampaign(cells, 'h2', 1);
  assert.deepEqual(
    [...new Set(comparisons.map(({ arm, base }) => `${arm}/${base}`))],
    ['h1/h2', 'h3/h2'],
  );
});

test('p is adjusted over all comparisons of the campaign except the control', () => {
  const cells = ['h2', 'h3', 'h1'].map((arm) => cell(arm, at(blocks(20), noisy(1))));
  const second = cell('h2-again', at(blocks(20), noisy(1)), 'fibre', 'h2');
  const { comparisons, control } = compareCampaign([...cells, second], undefined, 1);
  const tested = comparisons.filter(({ holmP }) => holmP !== undefined);
  assert.deepEqual(
    tested.map(({ arm }) => arm),
    ['h3', 'h1'],
  );
  const least = Math.min(...tested.map(({ wilcoxon }) => wilcoxon.p));
  assert.ok(
    tested.some(({ wilcoxon, holmP }) => wilcoxon.p === least && holmP === Math.min(1, 2 * least)),
  );
  assert.equal(comparisons.find(({ arm }) => arm === 'h2-again')?.base, 'h2');
  assert.equal(control.intervals, 1);
});

test("arm is a control by the plan's setting, not by its name", () => {
  const arms = (repeats: string | undefined): ComparedCell[] => [
    cell('auto', at(blocks(20), noisy(1))),
    cell('h3', at(blocks(20), noisy(1))),
    cell('auto-again', at(blocks(20), noisy(2)), 'fibre', repeats),
    cell('second', at(blocks(20), noisy(2)), 'fibre', repeats && 'h3'),
  ];
  const named = compareCampaign(arms(undefined), 'h3', 1);
  assert.deepEqual(
    named.comparisons.map(({ arm, base, verdict }) => [arm, base, verdict.kind]),
    [
      ['auto', 'h3', 'none-detected'],
      ['auto-again', 'h3', 'slower'],
      ['second', 'h3', 'slower'],
    ],
  );
  // All three count in Holm's adjustment: the smallest p is multiplied by three.
  const least = named.comparisons.reduce((best, each) =>
    each.wilcoxon.p < best.wilcoxon.p ? each : best,
  );
  assert.equal(least.holmP, Math.min(1, 3 * least.wilcoxon.p));
  assert.equal(named.control.verdict, 'none');

  const planned = compareCampaign(arms('auto'), 'h3', 1);
  assert.deepEqual(
    planned.comparisons.map(({ arm, base, verdict }) => [arm, base, verdict.kind]),
    [
      ['auto', 'h3', 'none-detected'],
      ['auto-again', 'auto', 'control'],
      ['second', 'h3', 'control'],
    ],
  );
  assert.equal(planned.control.intervals, 2);
});

test('pair without blocks, or with too few for an interval, has no effect', () => {
  for (const [first, second] of [
    [
      [1, 2, 3],
      [4, 5, 6],
    ],
    [
      [1, 2, 3],
      [1, 2, 3],
    ],
  ] as const) {
    const cells = [
      cell('h2', at(first, noisy(1))),
      cell('h2-again', at(second, noisy(1)), 'fibre', 'h2'),
      cell('h3', at(second, noisy(1))),
    ];
    const { comparisons } = compareCampaign(cells, undefined, 1);
    const [control] = comparisons;
    assert.deepEqual(control?.verdict, { kind: 'control', excludesNoEffect: undefined });
    assert.equal(describeVerdict(control), 'control: h2 twice, too few blocks for an interval');
    const figures = comparisonRows(comparisons, true).map((row) => row.slice(3, 7));
    if (first[0] !== second[0])
      assert.deepEqual(
        figures,
        times(2, () => ['-', '-', '-', '-']),
      );
    else assert.ok(figures.every((row) => row.slice(0, 3).every((figure) => figure !== '-')));
  }
});

test('five blocks give no verdict', () => {
  const { comparisons } = compareCampaign(
    [cell('h2', at(blocks(5), noisy(1))), cell('h3', at(blocks(5), noisy(3)))],
    undefined,
    1,
  );
  assert.equal(comparisons[0]?.verdict.kind, 'too-few');
  assert.equal(comparisons[0].medianRatio?.interval, undefined);
});

/** Returns so many comparisons, each over so many blocks in which h3 is always faster. */
function allFaster(comparisons: number, count: number): readonly ArmComparison[] {
  const cells = times(comparisons, (index) => [
    cell('h2', at(blocks(count), noisy(3)), `profile-${index}`),
    cell('h3', at(blocks(count), noisy(1)), `profile-${index}`),
  ]);
  return compareCampaign(cells.flat(), undefined, 1).comparisons;
}

for (const [comparisons, needed] of [
  [1, 6],
  [3, 7],
  [6, 8],
  [12, 9],
] as const) {
  test(`${comparisons} comparisons need ${needed} blocks for a verdict, and with one less this is reported`, () => {
    const few = allFaster(comparisons, needed - 1);
    const all = times(comparisons, () => ({ kind: 'too-few', needed, comparisons }));
    assert.deepEqual(
      few.map(({ verdict }) => verdict),
      all,
    );
    const counted = comparisons === 1 ? '1 comparison' : `${comparisons} comparisons`;
    const words = `too few blocks: with ${counted} a verdict needs ${needed}`;
    assert.deepEqual([...new Set(few.map(describeVerdict))], [words]);
    assert.deepEqual(
      [...new Set(allFaster(comparisons, needed).map(describeVerdict))],
      ['h3 is faster'],
    );
  });
}

test('enough blocks without an effect report the detectable difference, not a lack of blocks', () => {
  const cells = ['h2', 'h3'].map((arm) =>
    cell(
      arm,
      at(blocks(6), (block) => (arm === 'h2' ? 1 : 1 + (-1) ** block / 9)),
    ),
  );
  const [found] = compareCampaign(cells, undefined, 1).comparisons;
  assert.equal(found?.verdict.kind, 'none-detected');
});

test('comparison without a block counts itself as one more than the comparisons with blocks', () => {
  const cells = [
    ...['h2', 'h3'].map((arm) => cell(arm, at(blocks(4), noisy(1)), 'lte')),
    cell('h2', at([1, 2], noisy(1))),
    cell('h3', at([3, 4], noisy(1))),
  ];
  const { comparisons } = compareCampaign(cells, undefined, 1);
  assert.deepEqual(
    comparisons.map(({ profile, verdict }) => [profile, verdict]),
    [
      ['lte', { kind: 'too-few', needed: 6, comparisons: 1 }],
      ['fibre', { kind: 'too-few', needed: 7, comparisons: 2 }],
    ],
  );
});

test('bench bias towards the second of two identical arms is found by its control', () => {
  const profiles = times(6, (index) => `profile-${index}`);
  const campaign = (favour: number): ReturnType<typeof compareCampaign> =>
    compareCampaign(
      profiles.flatMap((profile) => [
        cell('h2', at(blocks(30), noisy(1)), profile),
        cell('h2-again', at(blocks(30), noisy(favour)), profile, 'h2'),
      ]),
      undefined,
      1,
    );
  assert.equal(campaign(1).control.verdict, 'good');
  assert.deepEqual(campaign(0.9).control, {
    intervals: 6,
    excluding: 6,
    allowed: 2,
    verdict: 'repair-the-bench',
  });
});

test('control with few blocks is not judged because its intervals are too narrow', () => {
  const cells = [
    cell('h2', at(blocks(10), noisy(1))),
    cell('h2-again', at(blocks(10), noisy(2)), 'fibre', 'h2'),
  ];
  assert.deepEqual(compareCampaign(cells, undefined, 1).control, {
    intervals: 0,
    excluding: 0,
    allowed: 0,
    verdict: 'none',
  });
});

test('control over few blocks is reported as not judged, and as missing only where it is missing', () => {
  const cells = [cell('h2', at([1], noisy(1))), cell('again', at([1], noisy(1)), 'fibre', 'h2')];
  assert.match(
    describeControl(pooledControl([]), compareCampaign(cells, undefined, 1).comparisons),
    /^The control is not judged/,
  );
  assert.match(describeControl(pooledControl([]), []), /^There is no control/);
});

test('control counts of campaigns are pooled', () => {
  const one = { intervals: 20, excluding: 3 };
  assert.equal(pooledControl([one]).verdict, 'good');
  assert.deepEqual(pooledControl([one, one, one]), {
    intervals: 60,
    excluding: 9,
    allowed: 7,
    verdict: 'repair-the-bench',
  });
  assert.equal(pooledControl([]).verdict, 'none');
});

const rule = { min: 10, max: 40, intervalPercent: 5 };
const pairs = (count: number, spread: number): Pair[] =>
  times(count, (block) => ({ block, base: noisy(1, spread)(), arm: noisy(1, spread)() }));

test('campaign stops at narrow intervals at a scheduled check, and at its maximum number of blocks at the latest', () => {
  const narrow = pairs(15, 0.01);
  assert.equal(enough([narrow.slice(0, 9)], 9, rule, 1), false);
  assert.equal(enough([narrow.slice(0, 10)], 10, rule, 1), true);
  assert.equal(enough([narrow.slice(0, 12)], 12, rule, 1), false);
  assert.equal(enough([narrow], 15, rule, 1), true);
  const wide = pairs(40, 0.5);
  assert.equal(enough([narrow, wide.slice(0, 15)], 15, rule, 1), false);
  assert.equal(enough([wide], 40, rule, 1), true);
});

test('campaign with an unbounded interval continues', () => {
  const unbounded = pairs(15, 0.01).map((pair, index) =>
    index % 2 === 0 ? { ...pair, arm: Infinity } : pair,
  );
  assert.equal(enough([unbounded], 15, rule, 1), false);
});

test('arm that never loaded the page is reported even with too few blocks for a verdict', () => {
  const load = (arm: string, seconds: number): ComparedCell => ({
    ...{ profile: 'p', arm },
    times: { load: times(3, (block) => ({ block, seconds })), firstByte: [], lcp: [] },
  });
  const cells = [load('h2', 1), load('h3', Infinity)];
  const words = compareCampaign(cells, 'h2', 1)
    .comparisons.filter(({ metric }) => metric === 'load')
    .map(describeVerdict);
  assert.deepEqual(words, [
    'h3: no load completed; h3 0 of 3, h2 3 of 3; too few blocks: with 1 comparison a verdict needs 6',
  ]);
});
