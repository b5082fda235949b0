import assert from 'node:assert/strict';
import {
  appendFileSync,
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { parse, type HTMLElement } from 'node-html-parser';
import type { Campaign } from '../src/campaign/campaign-file.js';
import { html, prose } from '../src/report/html.js';
import { spansOf } from '../src/report/waterfall.js';
import { COMPARISONS, REPORT, writeReports } from '../src/report/write-report.js';
import { timesOf } from '../src/run/run-load.js';
import type { BrowserSide, Sample, TimelineEntry } from '../src/samples/sample.js';
import { recorded, recordedFolder, recordedSamples, type Mutable } from './recorded.js';

/** Copies the recorded campaign with other samples. */
function campaignOf(t: TestContext, samples: readonly unknown[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-report-test-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  cpSync(join(recordedFolder, 'campaign.json'), join(folder, 'campaign.json'));
  writeFileSync(
    join(folder, 'samples.jsonl'),
    samples.map((sample) => `${JSON.stringify(sample)}\n`).join(''),
  );
  return folder;
}

/** Returns `blocks` blocks of each arm with separate times, from the recorded one. */
function manySamples(blocks = 7): Mutable<Sample>[] {
  const recordedBlock = recordedSamples().filter(({ block }) => block === 1);
  return Array.from({ length: blocks }, (_, block) =>
    recordedBlock.map((sample, index) => {
      const copy = structuredClone(sample) as Mutable<Sample>;
      copy.load = block * 3 + index + 1;
      copy.block = block + 1;
      copy.times.load = 0.1 * (index + 1) + 0.01 * ((block * 3) % 7);
      return copy;
    }),
  ).flat();
}

async function reportOf(
  t: TestContext,
  samples: readonly unknown[],
): Promise<{ markup: string; text: string; table: string }> {
  const folder = campaignOf(t, samples);
  const { table } = await writeReports(folder);
  const markup = readFileSync(join(folder, REPORT), 'utf8');
  return { markup, text: parse(markup).textContent.replace(/\s+/g, ' '), table };
}

/** Counts the loads that are drawn as points. */
function pointsIn(root: HTMLElement): number {
  const paths = root
    .querySelectorAll('.violin .points')
    .map((path) => path.getAttribute('d') ?? '');
  return paths.join('').split('M').length - 1;
}

test('report shows each arm in violins, table and waterfalls', async (t) => {
  const { markup } = await reportOf(t, manySamples());
  const root = parse(markup);
  const labels = root.querySelectorAll('.violin .label').map((label) => label.textContent);
  assert.deepEqual(labels, ['h1', 'h2', 'h3']);
  assert.equal(root.querySelectorAll('.violin path').length, 6);
  assert.equal(pointsIn(root), 21);
  assert.equal(root.querySelectorAll('.waterfall').length, 3);
  assert.equal(root.querySelectorAll('.waterfall .row .path').length, 3 * 6);
  const [comparisons, figures] = root
    .querySelectorAll('table')
    .map((table) => table.querySelectorAll('tbody tr').length);
  assert.equal(figures, 3);
  // Two arms against the first; each load of the recorded campaign has all three times.
  assert.equal(comparisons, 2 * 3);
});

test('report draws a row with interval for each comparison of load times', async (t) => {
  const { markup, text, table } = await reportOf(t, manySamples());
  const rows = parse(markup).querySelectorAll('.forest .ratio');
  assert.equal(rows.length, 2);
  for (const row of rows) {
    assert.match(row.textContent, /\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]/);
    const ends = /left:([\d.]+)%;right:([\d.]+)%/.exec(
      row.querySelector('i')?.getAttribute('style') ?? '',
    );
    assert.ok(ends && Number(ends[1]) + Number(ends[2]) < 100);
  }
  assert.match(table, /\nmild +load +h2 \/ h1 +\d\.\d{3} \[.*\] +\d+\.\d \[.*\] +0\.\d{4} +7 +\S/);
  assert.ok(text.includes('There is no control'));
});

test('arm that never completed is slower without a number', async (t) => {
  const samples = manySamples();
  for (const sample of samples.filter(({ arm }) => arm === 'h3')) {
    Object.assign(sample, { outcome: 'timeout', reason: 'no load event in 30 s', times: {} });
  }
  const folder = campaignOf(t, samples);
  const { table } = await writeReports(folder);
  assert.match(
    table,
    /mild +load +h3 \/ h1 +none \[none, none\] +none \[none, none\] +none \[none, none\]/,
  );
  assert.match(table, /"none", or a ratio of 0, marks an end without a number/);
  const data = JSON.parse(readFileSync(join(folder, COMPARISONS), 'utf8')) as {
    comparisons: { arm: string; metric: string; shift: { value: unknown } }[];
  };
  const found = data.comparisons.find(({ arm, metric }) => arm === 'h3' && metric === 'load');
  assert.equal(found?.shift.value, 'Infinity');
});

test('arm that never loaded is listed before any verdict, and its error pages have no times', async (t) => {
  const samples = manySamples(9);
  const documentFault = 'the document has status 500';
  for (const sample of samples.filter(({ arm }) => arm === 'h3')) {
    // An error page arrives almost immediately.
    const browser = Object.assign(sample.browser as Mutable<BrowserSide>, {
      outcome: 'incomplete',
      documentFault,
    });
    Object.assign(sample, {
      outcome: 'incomplete',
      reason: documentFault,
      times: timesOf(browser as BrowserSide, { kind: 'document' }),
    });
  }
  const { markup, text, table } = await reportOf(t, samples);
  const line = 'h3 on mild: 0 of 9 loaded over HTTP/3 (9 × the document has status 500)';
  assert.ok(table.startsWith(`${line}\n`), table.slice(0, 200));
  const first = text.replace(/^.*?<\/style>/, '');
  assert.ok(first.includes(line) && first.indexOf(line) < first.indexOf('Load times'));
  assert.ok(parse(markup).querySelector('.notice')?.textContent.includes(line));
  const shares = 'h3 0 of 9, h1 9 of 9';
  assert.match(table, new RegExp(`mild +load +h3 / h1 .* h3: no load completed; ${shares}\n`));
  assert.match(
    table,
    new RegExp(`mild +first byte +h3 / h1 +none .* h3: no first byte; ${shares}\n`),
  );
  assert.doesNotMatch(table, /h3 is (slower|faster)/);
});

test('arms that fail independently are listed with their shares, and not as slower', async (t) => {
  const samples = manySamples(12);
  for (const sample of samples) {
    // h1 never loads, h2 in three of four blocks, h3 never.
    if (sample.arm === 'h2' && sample.block % 4 > 0) continue;
    Object.assign(sample, {
      outcome: 'failed',
      reason: 'net::ERR_TIMED_OUT',
      times: { firstByte: 0.001 },
    });
  }
  const { table } = await reportOf(t, samples);
  assert.match(
    table,
    /^h1 on mild: 0 of 12 loaded over HTTP\/1\.1 \(12 × no document received\)\nh3 on mild: 0 of 12 /,
  );
  assert.match(table, /\nh2 on mild: 9 of 12 loaded over HTTP\/2 \(3 × no document received\)\n/);
  assert.match(
    table,
    /load +h3 \/ h1 .* no load completed in either arm: h3 0 of 12, h1 0 of 12\n/,
  );
  assert.match(table, /load +h2 \/ h1 .* h1: no load completed; h2 9 of 12, h1 0 of 12\n/);
  // Data about the browser's own page, also in samples of earlier versions, is not a first byte.
  assert.doesNotMatch(table, /first byte +h3/);
});

test('largest paint of a load that did not complete counts as never reached', async (t) => {
  const samples = manySamples();
  for (const sample of samples.filter(({ arm }) => arm === 'h2')) {
    Object.assign(sample, { outcome: 'incomplete', reason: 'an image is missing' });
    Object.assign(sample.times, { load: undefined, firstByte: 0.01, largestContentfulPaint: 0.02 });
  }
  const { table } = await reportOf(t, samples);
  assert.match(table, /mild +largest paint +h2 \/ h1 +none /);
  assert.match(table, /mild +first byte +h2 \/ h1 +0\.\d{3} /);
});

test('invalid load excludes its pair', async (t) => {
  const samples = manySamples();
  const bad = samples.find(({ arm }) => arm === 'h3');
  Object.assign(bad ?? {}, { valid: false, invalidReasons: ['it was late'] });
  const { table } = await reportOf(t, samples);
  assert.match(table, /mild +load +h3 \/ h1 .* 6 +\S/);
  assert.match(table, /1 pair is missing, because the load of one arm is invalid/);
});

test('times with two modes are listed with their step', async (t) => {
  const samples = manySamples().flatMap((sample, at) =>
    [0, 1].map((copy) => {
      const other = structuredClone(sample);
      other.load = 2 * at + copy + 1;
      other.block = 2 * sample.block - copy;
      other.times.load =
        0.5 + at / 1000 + (sample.arm === 'h2' && sample.block <= 3 && copy === 1 ? 1.02 : 0);
      return other;
    }),
  );
  const { table } = await reportOf(t, samples);
  assert.match(
    table,
    /h2 on mild: two modes, 11 loads about 0\.5\d\d s and 3 about 1\.5\d\d s .*lost and retransmitted SYN/,
  );
  assert.doesNotMatch(table, /h3 on mild: two modes/);
});

test('p99 of few loads has no upper bound and says so', async (t) => {
  const { table } = await reportOf(t, manySamples());
  assert.match(table, /The true p99 has no finite upper bound until n = 368\./);
  assert.match(
    table,
    /h1 on mild, 95 %: median 0\.\d+ to 0\.\d+, p90 0\.\d+ to unbounded, p99 0\.\d+ to unbounded\./,
  );
});

test('report requests no external resources', async (t) => {
  const { markup } = await reportOf(t, manySamples());
  const root = parse(markup);
  assert.equal(
    root.querySelectorAll('script[src], img, iframe, object, embed, video, audio').length,
    0,
  );
  const targets = root
    .querySelectorAll('*')
    .flatMap((element) =>
      ['href', 'src', 'srcset', 'action', 'xlink:href'].map((name) => element.getAttribute(name)),
    );
  assert.deepEqual(
    targets.filter((target) => target !== undefined),
    ['data:,'],
  );
  const style = root
    .querySelectorAll('style')
    .map((element) => element.textContent)
    .join('');
  assert.doesNotMatch(style, /url\(|@import/);
  assert.doesNotMatch(markup, /https?:\/\//);
});

test('report shows congestion control of both sides, seed, link and machine', async (t) => {
  const { text } = await reportOf(t, [...recordedSamples(), ...manySamples()]);
  for (const fact of [
    'CUBIC_BYTES',
    'cubic',
    'seed 5',
    '50 Mbit/s, 5 ms',
    'Chromium 156',
    'linux',
  ]) {
    assert.ok(text.includes(fact), fact);
  }
});

test('report claims no controller for a server without a controller setting', async (t) => {
  const rowsOf = async (
    change: (campaign: Mutable<Campaign>) => void,
  ): Promise<Record<string, string[]>> => {
    const folder = campaignOf(t, manySamples());
    const path = join(folder, 'campaign.json');
    const campaign = JSON.parse(readFileSync(path, 'utf8')) as Mutable<Campaign>;
    change(campaign);
    writeFileSync(path, JSON.stringify(campaign));
    await writeReports(folder);
    const root = parse(readFileSync(join(folder, REPORT), 'utf8'));
    const table = root.querySelector('[aria-label="Table of congestion control"]');
    const rows = table?.querySelectorAll('tbody tr') ?? [];
    return Object.fromEntries(
      rows.map((row) => {
        const [arm = '', ...cells] = row
          .querySelectorAll('td')
          .map(({ textContent }) => textContent);
        return [arm, [cells[0] ?? '', cells[3] ?? '']];
      }),
    );
  };
  const commandOf = (command: string): ReturnType<typeof rowsOf> =>
    rowsOf((campaign) => {
      campaign.servers = [{ name: 'pronghorn', args: [], command }];
    });
  assert.deepEqual(await rowsOf(() => undefined), {
    h1: ['cubic', '–'],
    h2: ['cubic', '–'],
    h3: ['cubic', 'cubic'],
  });
  assert.deepEqual((await commandOf('x {congestion}')).h3, ['cubic', 'cubic']);
  assert.deepEqual(await commandOf('x {page}'), {
    h1: ['cubic', '–'],
    h2: ['cubic', '–'],
    h3: ['nothing', 'not set'],
  });
  const live = await rowsOf((campaign) => {
    campaign.pages = campaign.pages.map((page) => ({ ...page, url: 'https://a.test/' }));
  });
  assert.deepEqual(
    [live.h2, live.h3],
    [
      ['nothing', '–'],
      ['nothing', 'not set'],
    ],
  );
});

/** Returns the rows of the table of labels, as `arm: what, loads`. */
async function whyOf(
  t: TestContext,
  change: (sample: Mutable<Sample>) => void,
  campaignChange: (campaign: Mutable<Campaign>) => void = () => undefined,
): Promise<{ rows: string[]; note: string }> {
  const samples = manySamples();
  samples.forEach(change);
  const folder = campaignOf(t, samples);
  const path = join(folder, 'campaign.json');
  const campaign = JSON.parse(readFileSync(path, 'utf8')) as Mutable<Campaign>;
  campaignChange(campaign);
  writeFileSync(path, JSON.stringify(campaign));
  await writeReports(folder);
  const section = parse(readFileSync(join(folder, REPORT), 'utf8')).querySelector('#why');
  let arm = '';
  const rows = (section?.querySelectorAll('tbody tr') ?? []).map((row) => {
    const [, name = '', what = '', loads = ''] = row
      .querySelectorAll('td')
      .map((cell) => cell.textContent.trim());
    arm = name === '' ? arm : name;
    return `${arm}: ${what.replace(/\s+/g, ' ')}, ${loads.trim()}`;
  });
  return { rows, note: section?.textContent ?? '' };
}

const stall = { kind: 'hol-stall', at: 0.1, seconds: 0.05, detail: 'made so' } as const;
const timeOut = { kind: 'rto', at: 0.1, seconds: 0.2, detail: 'made so' } as const;

test('head-of-line blocking is not looked for over HTTP/3 without a NetLog, and the report says so', async (t) => {
  const { rows, note } = await whyOf(t, (sample) => {
    sample.labels = sample.arm === 'h2' && sample.block < 4 ? [stall, timeOut] : [];
  });
  assert.deepEqual(rows, [
    'h2: head of line, 3 of 7',
    'h2: time-out, 3 of 7',
    'h3: head of line, not looked for',
    'h3: time-out, not looked for',
  ]);
  assert.match(note, /--watch-all writes one for each load.*They may have occurred/s);

  const watched = await whyOf(
    t,
    (sample) => {
      sample.labels = sample.arm === 'h3' && sample.block < 4 ? [stall] : [];
    },
    (campaign) => (campaign.watched = true),
  );
  assert.deepEqual(watched.rows, ['h3: head of line, 3 of 7']);
  assert.doesNotMatch(watched.note, /not looked for/);
});

test('choice of protocols is observed over TCP only, and not at all for an external page', async (t) => {
  const labels = (sample: Mutable<Sample>): void => {
    sample.labels = sample.arm === 'h2' && sample.block === 1 ? [stall] : [];
  };
  const choice = await whyOf(t, labels, (campaign) => {
    for (const arm of campaign.arms) if (arm.name !== 'h1') arm.protocol = 'auto';
  });
  assert.deepEqual(choice.rows, [
    'h2: head of line over TCP only, 1 of 7',
    'h3: head of line over TCP only, 0 of 7',
  ]);
  const live = await whyOf(
    t,
    (sample) => (sample.labels = []),
    (campaign) =>
      (campaign.pages = campaign.pages.map((page) => ({ ...page, url: 'https://a.test/' }))),
  );
  assert.deepEqual(
    live.rows,
    ['h1', 'h2', 'h3'].map((arm) => `${arm}: head of line, not looked for`),
  );
});

test('loads without a timeline are not among the observed loads', async (t) => {
  const { rows } = await whyOf(t, (sample) => {
    if (sample.block > 5) delete sample.labels;
    else sample.labels = sample.arm === 'h2' ? [stall] : [];
    if (sample.arm === 'h1') delete sample.labels;
  });
  assert.deepEqual(rows, [
    'h1: head of line, not looked for',
    'h2: head of line, 5 of 5',
    'h3: head of line, not looked for',
  ]);
});

test('row whose ratio and shift disagree is followed by an explanation', async (t) => {
  const samples = manySamples();
  for (const sample of samples) {
    const slow = sample.block > 4;
    const seconds: Readonly<Record<string, number>> = {
      h1: slow ? 9 : 1,
      h2: slow ? 9.5 : 1.1,
      h3: slow ? 2 : 1.2,
    };
    sample.times.load = seconds[sample.arm] ?? 0;
  }
  const { markup, table } = await reportOf(t, samples);
  const root = parse(markup);
  const rows = root.querySelectorAll('[aria-label="Table of comparisons"] tbody tr');
  const explained = rows.flatMap((row, index) =>
    row.classNames.includes('explained') ? [index] : [],
  );
  assert.equal(explained.length, 1);
  const [at = 0] = explained;
  assert.match(rows[at]?.textContent.replace(/\s+/g, ' ') ?? '', /h3 \/ h1 ?1\.200 .*\] ?-\d/);
  const words =
    /Ratio and shift point in different directions: h3 has the slower median over all blocks/;
  assert.match(rows[at + 1]?.textContent ?? '', words);
  assert.equal(rows[at + 1]?.querySelector('td')?.getAttribute('colspan'), '9');
  // Also beside the drawing, which shows the ratio.
  assert.match(root.querySelector('article > p')?.textContent ?? '', words);
  assert.match(table, /h3 \/ h1 .*Ratio and shift point in different directions/);
});

test('only faults are red', async (t) => {
  const facts = (markup: string): [string, string][] =>
    parse(markup)
      .querySelectorAll('.facts li')
      .map((fact) => [fact.textContent.replace(/\s+/g, ' ').trim(), fact.classNames]);
  const sound = await reportOf(t, manySamples());
  assert.deepEqual(facts(sound.markup).slice(0, 3), [
    ['21 loads', ''],
    ['21 valid', 'good'],
    ['21 of 21 completed', 'good'],
  ]);
  const samples = manySamples();
  Object.assign(samples[0] ?? {}, { valid: false, invalidReasons: ['it was late'] });
  Object.assign(samples[1] ?? {}, {
    outcome: 'timeout',
    reason: 'no load event in 30 s',
    times: {},
  });
  const { markup } = await reportOf(t, samples);
  assert.deepEqual(facts(markup).slice(0, 4), [
    ['21 loads', ''],
    ['20 valid', ''],
    ['1 invalid', 'bad'],
    ['19 of 20 completed', ''],
  ]);
  const red = parse(markup)
    .querySelectorAll('.bad')
    .map(({ textContent }) => textContent);
  assert.deepEqual(red, ['1 invalid']);
});

test('backticks become code, and no text keeps them', async (t) => {
  const samples = manySamples();
  Object.assign(samples[0] ?? {}, { valid: false, invalidReasons: ['look at `pronghorn link`'] });
  const { markup } = await reportOf(t, samples);
  assert.match(markup, /is invalid: look at <code>pronghorn link<\/code>/);
  const root = parse(markup);
  for (const element of root.querySelectorAll('style, script')) element.remove();
  assert.doesNotMatch(root.textContent, /`/);
  assert.equal(prose('a `<b>` and ` alone').markup, 'a <code>&#60;b&#62;</code> and ` alone');
});

test('rehearsal counts for no figure, and is listed if it failed', async (t) => {
  const rehearsals = recordedSamples().filter(({ block }) => block === 0) as Mutable<Sample>[];
  assert.equal(rehearsals.length, 3);
  for (const rehearsal of rehearsals) rehearsal.times.load = 77;
  Object.assign(rehearsals[0] ?? {}, { valid: false, invalidReasons: ['it was late'] });
  const { table, markup } = await reportOf(t, [...rehearsals, ...manySamples()]);
  assert.doesNotMatch(table, /77\.0000/);
  assert.match(table, /load 1 \(mild, rehearsal, h\d\) is invalid: it was late/);
  assert.equal(pointsIn(parse(markup)), 21);
});

test('waterfall is of the load with the median time', async (t) => {
  const samples = manySamples();
  const times = samples
    .filter(({ arm }) => arm === 'h2')
    .sort((a, b) => (a.times.load ?? 0) - (b.times.load ?? 0));
  const { text } = await reportOf(t, samples);
  assert.ok(text.includes(`load ${times[3]?.load ?? 0}:`), text);
});

test('invalid load is excluded from the figures and listed with its reasons', async (t) => {
  const samples = manySamples();
  const bad = samples.find(({ arm }) => arm === 'h3');
  assert.ok(bad);
  Object.assign(bad, {
    valid: false,
    invalidReasons: ['the link <missed> its deadlines'],
    times: { load: 99 },
  });
  const { markup, text, table } = await reportOf(t, samples);
  assert.match(table, /mild +h3 +.* 6 +6 +1\n/);
  assert.doesNotMatch(table, /99\.0000/);
  assert.ok(
    table.includes(
      `load ${bad.load} (mild, block 1, h3) is invalid: the link <missed> its deadlines`,
    ),
  );
  assert.equal(parse(markup).querySelectorAll('ul.trouble li').length, 1);
  assert.ok(markup.includes('the link &#60;missed&#62; its deadlines'));
  assert.ok(text.includes('21 loads'));
});

test('load that did not complete counts, ranks slowest and is listed', async (t) => {
  const samples = manySamples();
  for (const sample of samples.filter(({ arm }) => arm === 'h2').slice(0, 2)) {
    Object.assign(sample, { outcome: 'timeout', reason: 'no load event in 30 s', times: {} });
  }
  const { text, table } = await reportOf(t, samples);
  assert.match(table, /mild +h2 +\d\.\d{4} +\d\.\d{4}\* +none +none +\d\.\d{4} +none +7 +5 +0\n/);
  assert.ok(text.includes('2 unfinished'));
  assert.match(table, /"none": the load at this rank did not complete \(limit 30 s\)/);
});

test('seconds in the table have four decimals', async (t) => {
  const [sample] = manySamples();
  assert.ok(sample);
  sample.times.load = 0.6350000001;
  const { table } = await reportOf(t, [sample]);
  assert.match(table, new RegExp(`mild +${sample.arm} +0\\.6350 +0\\.6350`));
});

test('p99 of few loads is labelled with its rank', async (t) => {
  const { table } = await reportOf(t, manySamples());
  assert.match(table, /p99 = largest of 7; p99 differs from the maximum only from n = 100 on/);
});

test('arm without a completed load leaves nothing to compare', async (t) => {
  const onlyTwo = manySamples().filter(({ arm }) => arm !== 'h3');
  assert.equal((await writeReports(campaignOf(t, onlyTwo))).comparable, false);
  assert.equal((await writeReports(campaignOf(t, manySamples()))).comparable, true);
});

test('report of a campaign without samples is still made', async (t) => {
  const { markup } = await reportOf(t, []);
  assert.equal(parse(markup).querySelectorAll('.violin').length, 1);
});

test('reports leave no partial files', async (t) => {
  const folder = campaignOf(t, manySamples());
  await writeReports(folder);
  assert.deepEqual(readdirSync(folder).sort(), [
    'campaign.json',
    'comparisons.json',
    'report.html',
    'samples.csv',
    'samples.jsonl',
    'side-by-side',
    'table.md',
    'table.txt',
  ]);
});

test('partial last line of the samples is skipped, and any other invalid line is reported', async (t) => {
  const folder = campaignOf(t, manySamples());
  const path = join(folder, 'samples.jsonl');
  const whole = readFileSync(path, 'utf8');
  appendFileSync(path, '{"schema":2,"load":2');
  assert.equal((await writeReports(folder)).results.cells.flatMap(({ loads }) => loads).length, 21);
  appendFileSync(path, '\n');
  await assert.rejects(writeReports(folder), {
    exitCode: 65,
    message: /samples\.jsonl, line 22 is not a valid sample/,
  });
  writeFileSync(path, `{"schema":2\n${whole}`);
  await assert.rejects(writeReports(folder), {
    exitCode: 65,
    message: /samples\.jsonl, line 1 is not a valid sample/,
  });
  // A manually edited file may lack the last line end.
  writeFileSync(path, whole.trimEnd());
  assert.equal((await writeReports(folder)).results.cells.flatMap(({ loads }) => loads).length, 21);
});

test('pages are distinguished where there are several', async (t) => {
  const samples = [
    ...manySamples(),
    ...manySamples().map((sample) => ({ ...sample, page: 'other' })),
  ];
  const folder = campaignOf(t, samples);
  const path = join(folder, 'campaign.json');
  const campaign = JSON.parse(readFileSync(path, 'utf8')) as Mutable<Campaign>;
  campaign.pages.push({ name: 'other', requests: 2 });
  writeFileSync(path, JSON.stringify(campaign));
  const { table } = await writeReports(folder);
  assert.match(table, /^profile +page +arm /);
  assert.match(table, /\nmild +page +h3 [^]*\nmild +other +h3 /);
  const report = parse(readFileSync(join(folder, 'report.html'), 'utf8'));
  assert.deepEqual(
    report
      .querySelectorAll('article h3')
      .slice(0, 2)
      .map((title) => title.textContent),
    ['mild, page', 'mild, other'],
  );
});

test('folder that is not a campaign is missing input', async (t) => {
  const folder = campaignOf(t, []);
  rmSync(join(folder, 'samples.jsonl'));
  await assert.rejects(writeReports(folder), {
    exitCode: 66,
    message: /cannot read the samples \S+samples\.jsonl/,
  });
  rmSync(join(folder, 'campaign.json'));
  await assert.rejects(writeReports(folder), { exitCode: 66, message: /has no campaign\.json/ });
});

test('text in templates is escaped and markup is not', () => {
  assert.equal(
    html`<p title="${'"x"'}">${'<b>'}${html`<i>${1}</i>`}${undefined}</p>`.markup,
    '<p title="&#34;x&#34;">&#60;b&#62;<i>1</i></p>',
  );
});

const entry = (times: Partial<TimelineEntry>): TimelineEntry => ({
  ...(recorded('h3').browser.resources[0] as TimelineEntry),
  ...times,
});

test('phases of a request that opens the connection are contiguous', () => {
  const spans = spansOf(
    entry({
      startTime: 0,
      connectStart: 10,
      connectEnd: 110,
      requestStart: 112,
      responseStart: 210,
      responseEnd: 230,
    }),
  );
  assert.deepEqual(
    spans.map(({ phase, from, to }) => `${phase} ${from}-${to}`),
    ['blocked 0-10', 'connect 10-110', 'blocked 110-112', 'wait 112-210', 'receive 210-230'],
  );
});

test('request on an open connection has no connect phase', () => {
  const spans = spansOf(
    entry({
      startTime: 5,
      connectStart: 5,
      connectEnd: 5,
      requestStart: 40,
      responseStart: 90,
      responseEnd: 100,
    }),
  );
  assert.deepEqual(
    spans.map(({ phase, from, to }) => `${phase} ${from}-${to}`),
    ['blocked 5-40', 'wait 40-90', 'receive 90-100'],
  );
});

test('wait of a request with early data starts within the handshake', () => {
  const spans = spansOf(
    entry({
      startTime: 0,
      connectStart: 4,
      connectEnd: 100,
      requestStart: 6,
      responseStart: 108,
      responseEnd: 109,
    }),
  );
  assert.deepEqual(
    spans.map(({ phase, from, to }) => `${phase} ${from}-${to}`),
    ['blocked 0-4', 'connect 4-6', 'wait 6-108', 'receive 108-109'],
  );
});

test('median load that did not complete is drawn as far as it got', async (t) => {
  const samples = manySamples();
  for (const sample of samples.filter(({ arm }) => arm === 'h2').slice(0, 5)) {
    Object.assign(sample, { outcome: 'timeout', reason: 'no load event in 30 s', times: {} });
    Object.assign(sample.browser ?? {}, {
      outcome: 'timeout',
      resources: sample.browser?.resources.slice(0, 2),
    });
  }
  const { markup, text } = await reportOf(t, samples);
  assert.match(text, /load \d+: did not complete, 6 requests, h2/);
  assert.equal(parse(markup).querySelectorAll('.waterfall .row .path').length, 6 + 3 + 6);
});

test('campaign whose loads were all watched says so', async (t) => {
  const folder = campaignOf(t, manySamples());
  const path = join(folder, 'campaign.json');
  writeFileSync(path, readFileSync(path, 'utf8').replace('"watched": false', '"watched": true'));
  const { table } = await writeReports(folder);
  assert.match(table, /Each load was watched, which slows it/);
});
