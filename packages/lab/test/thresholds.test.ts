import assert from 'node:assert/strict';
import test from 'node:test';
import type { ComparedCell } from '../src/compare/compare-campaign.js';
import { ExitCode } from '../src/io/errors.js';
import { judge } from '../src/thresholds/judge.js';
import { parseThreshold, requireNamed } from '../src/thresholds/parse.js';
import { times } from './draws.js';

function cell(
  arm: string,
  seconds: readonly number[],
  profile = 'fibre',
  page?: string,
): ComparedCell {
  const load = seconds.map((each, index) => ({ block: index + 1, seconds: each }));
  return {
    profile,
    arm,
    times: { load, firstByte: load, lcp: [] },
    ...(page !== undefined && { page }),
  };
}

const lines = (condition: string, cells: readonly ComparedCell[]): string[] =>
  judge(parseThreshold(condition), cells, 1).map(({ kind, line }) => `${kind}: ${line}`);

/** Returns 1.00 to 1.29 s, multiplied by `factor`. */
const about = (factor: number, count = 30): number[] =>
  times(count, (at) => factor * (1 + at / 100));

test('condition is parsed with figure, limit and place', () => {
  const { surely, figure, comparator, limit, place } = parseThreshold(
    'surely h3.firstByte.p90>=1.5*h2.median on lte/shop',
  );
  assert.equal(surely, true);
  assert.deepEqual(figure, { arm: 'h3', metric: 'firstByte', statistic: 'p90', column: 8 });
  assert.equal(comparator, '>=');
  assert.deepEqual(limit, {
    kind: 'figure',
    factor: 1.5,
    figure: { arm: 'h2', metric: 'load', statistic: 'median', column: 30 },
  });
  assert.deepEqual(place, { profile: 'lte', page: 'shop', column: 43 });
});

test('arm name may contain dots, dashes, leading digits, and words of the grammar', () => {
  for (const arm of ['h3.bbr', 'h2-again', '2g', '5s', 'median', 'load', 'surely', 'on', '4.2']) {
    const { figure, limit } = parseThreshold(`${arm}.median > ${arm}.p90`);
    assert.equal(figure.arm, arm);
    assert.equal(limit.kind === 'figure' && limit.figure.arm, arm);
  }
  assert.deepEqual(parseThreshold('load.lcp.mean < 1 s').figure.metric, 'lcp');
});

test('numbers have units', () => {
  const value = (condition: string): unknown => parseThreshold(condition).limit;
  assert.deepEqual(value('h3.median > 250 ms'), { kind: 'constant', value: 0.25 });
  assert.deepEqual(value('h3.median > 1.5s'), { kind: 'constant', value: 1.5 });
  assert.deepEqual(value('h3.completed < 98%'), { kind: 'constant', value: 0.98 });
});

for (const [condition, column, message] of [
  ['', 1, /expected a figure of an arm/],
  ['h3', 1, /expected a figure after the arm, such as h3\.median/],
  ['h3.medain > 1 s', 4, /unknown figure medain; did you mean `median`\?/],
  ['h3.median 1 s', 11, /expected <, <=, > or >=/],
  ['h3.median == 1 s', 11, /expected <, <=, > or >=/],
  ['h3.median > 1', 13, /a number needs s, ms or % after it/],
  ['h3.median > 1 m', 13, /a number needs s, ms or % after it/],
  ['h3.median > 5 %', 13, /a time needs s or ms/],
  ['h3.completed < 5 s', 16, /`completed` is a share: expected %/],
  ['h3.median > -1 s', 13, /expected a figure of an arm/],
  ['h3.median > 1.1 * ', 19, /expected a figure of an arm/],
  ['h3.median > h2.completed', 13, /a share and a time cannot be compared/],
  ['surely h3.completed < h2.completed', 23, /`surely` compares a share only with a percentage/],
  ['h3.lcp.completed < 5 %', 1, /`completed` counts loads/],
  ['h3.median > 1 s lte', 17, /expected `on PROFILE` or the end/],
  ['h3.median > 1 s on', 19, /expected the name of a profile/],
  ['h3.median > 1 s on lte/', 24, /expected the name of a page/],
  ['h3.median > 1 s on lte, dsl', 23, /expected the end/],
] as const) {
  test(`invalid condition is reported with its column: '${condition}'`, () => {
    assert.throws(
      () => parseThreshold(condition),
      (thrown: { exitCode: number; line: () => string }) => {
        assert.equal(thrown.exitCode, ExitCode.Usage);
        assert.ok(
          thrown.line().includes(`--fail-if '${condition}', column ${column}: `),
          thrown.line(),
        );
        assert.match(thrown.line(), message);
        return true;
      },
    );
  });
}

test('unknown names are reported, with the nearest known name', () => {
  const campaign = { arms: [{ name: 'h2' }, { name: 'h3' }], profiles: [{ name: 'lte-bad' }] };
  const refused = (condition: string, message: RegExp): void => {
    assert.throws(
      () => {
        requireNamed(parseThreshold(condition), campaign);
      },
      (thrown: { line: () => string }) => message.test(thrown.line()),
    );
  };
  refused('h4.median > 1 s', /column 1: unknown arm h4; did you mean `h2`\?/);
  refused('h3.median > 2 * h1.median', /column 17: unknown arm h1/);
  refused(
    'h3.median > 1 s on lte-bda',
    /column 20: unknown profile lte-bda; did you mean `lte-bad`\?/,
  );
  refused('h3.median > 1 s on lte-bad/shop', /column 20: unknown page shop/);
  requireNamed(parseThreshold('h3.median > 2 * h2.median on lte-bad'), campaign);
});

test('true condition is a line with the measured value, for each profile where it is true', () => {
  const cells = [
    cell('h2', about(1)),
    cell('h3', about(1.5)),
    cell('h2', about(1), 'lte'),
    cell('h3', about(1), 'lte'),
    cell('h2', about(1), 'lte', 'shop'),
    cell('h3', about(3), 'lte', 'shop'),
  ];
  assert.deepEqual(lines('h3.median > 1.2 * h2.median', cells), [
    'broken: h3.median > 1.2 * h2.median on fibre: 1.7175 s > 1.2 * 1.1450 s',
    'broken: h3.median > 1.2 * h2.median on lte/shop: 3.4350 s > 1.2 * 1.1450 s',
  ]);
  assert.deepEqual(lines('h3.median > 1.2 * h2.median on lte/shop', cells), [
    'broken: h3.median > 1.2 * h2.median on lte/shop: 3.4350 s > 1.2 * 1.1450 s',
  ]);
  assert.deepEqual(lines('h3.median > 2 s on fibre', cells), []);
  assert.deepEqual(lines('h3.p90 >= h3.p90 on fibre', cells).length, 1);
});

test('surely needs the whole interval on the wrong side', () => {
  const cells = [cell('h2', about(1)), cell('h3', about(1.2))];
  assert.equal(lines('h3.median > 1.35 s', cells).length, 1);
  assert.deepEqual(lines('surely h3.median > 1.35 s', cells), []);
  const [sure] = lines('surely h3.median > 1.29 s', cells);
  assert.match(sure ?? '', /1\.3740 s > 1\.2900 s, 95 % of the figure: 1\.3\d+ s to 1\.4\d+ s$/);
  assert.deepEqual(lines('surely h3.median < 1.4 s', cells), []);
  assert.equal(lines('surely h3.median < 1.5 s', cells).length, 1);
  // Each block is 1.2 times as long, so the ratio hardly varies.
  assert.match(
    lines('surely h3.median > 1.1 * h2.median', cells)[0] ?? '',
    /95 % of the ratio: 1\.2\d\d to 1\.2\d\d$/,
  );
  assert.deepEqual(lines('surely h3.median > 1.25 * h2.median', cells), []);
  assert.equal(lines('surely h3.mean > 1.1 * h2.mean', cells).length, 1);
});

test('surely with too few blocks says that it cannot be decided, and fails nothing', () => {
  const cells = [cell('h3', about(9, 5))];
  assert.deepEqual(lines('surely h3.median > 1 s', cells), [
    'unsure: surely h3.median > 1 s on fibre: `surely` requires at least 6 blocks',
  ]);
});

test('share of completed loads is judged, for surely by its exact interval', () => {
  const cells = [cell('h3', [...about(1, 27), Infinity, Infinity, Infinity])];
  assert.deepEqual(lines('h3.completed < 95 %', cells), [
    'broken: h3.completed < 95 % on fibre: 90.0 % < 95.0 %',
  ]);
  assert.deepEqual(lines('surely h3.completed < 95 %', cells), []);
  assert.match(
    lines('surely h3.completed < 98 %', cells)[0] ?? '',
    /95 % of the figure: 73\.\d % to 97\.9 %$/,
  );
});

test('loads that did not complete are slower than any limit, in the mean too', () => {
  const cells = [cell('h3', [1, 1, 1, 1, Infinity])];
  assert.deepEqual(lines('h3.median > 500 s', cells), []);
  assert.match(lines('h3.p90 > 500 s', cells)[0] ?? '', /: none > 500\.0000 s$/);
  assert.match(lines('h3.mean > 500 s', cells)[0] ?? '', /: none > 500\.0000 s$/);
});

test('arm without a valid load does not pass', () => {
  assert.deepEqual(lines('h3.median > 1 s', [cell('h3', [])]), [
    'broken: h3.median > 1 s on fibre: h3 has no valid load',
  ]);
  assert.match(
    lines('h3.lcp.median > h2.median', [cell('h3', about(1)), cell('h2', about(1))])[0] ?? '',
    /h3 has no valid load with a lcp/,
  );
  assert.match(
    lines('h3.median > h2.median', [cell('h3', [1]), cell('h2', [])])[0] ?? '',
    /h2 has no valid load$/,
  );
});
