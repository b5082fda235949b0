import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { parse, type HTMLElement } from 'node-html-parser';
import { csvHead, csvLine } from '../src/samples/samples-csv.js';
import { stepOf } from '../src/report/filmstrip.js';
import { jpegSize, PictureStore } from '../src/report/pictures.js';
import { COLOURS } from '../src/report/style.js';
import { swarm } from '../src/report/violin.js';
import { RACES, REPORT, writeReports } from '../src/report/write-report.js';
import type { Sample } from '../src/samples/sample.js';
import { generateCampaign } from './generated.js';
import { recorded, type Mutable } from './recorded.js';

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-shared-test-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  return folder;
}

/**
 * Returns the header of a JPEG file of 40 × 30 pixels, enough to determine its size. `mark`
 * distinguishes files.
 */
function jpeg(mark: number, bytes = 64): Buffer {
  const head = Buffer.from([
    0xff,
    0xd8,
    0xff,
    0xfe,
    0,
    3,
    mark,
    0xff,
    0xc0,
    0,
    11,
    8,
    0,
    30,
    0,
    40,
    1,
    1,
    0x11,
    0,
  ]);
  return Buffer.concat([head, Buffer.alloc(bytes, mark)]);
}

function writePictures(
  folder: string,
  load: number,
  pictures: readonly (readonly [seconds: number, jpeg: Buffer])[],
): void {
  const screens = join(folder, 'traces', String(load).padStart(4, '0'), 'screens');
  mkdirSync(screens, { recursive: true });
  const index = pictures.map(([seconds, content], at) => {
    writeFileSync(join(screens, `${at}.jpg`), content);
    return { file: `${at}.jpg`, seconds };
  });
  writeFileSync(join(screens, 'screens.json'), JSON.stringify(index));
}

/**
 * Returns the report of a campaign of two arms and three blocks with pictures of the given loads.
 */
async function reportWith(
  t: TestContext,
  pictured: readonly number[],
): Promise<{ root: HTMLElement; folder: string }> {
  const folder = folderFor(t);
  generateCampaign(folder, {
    profiles: ['near'],
    pages: ['small'],
    arms: { h2: 1, h3: 2 },
    blocks: 3,
  });
  for (const load of pictured) {
    writePictures(folder, load, [
      [0.1, jpeg(0)],
      [0.25, jpeg(load)],
    ]);
  }
  await writeReports(folder);
  return { root: parse(readFileSync(join(folder, REPORT), 'utf8')), folder };
}

test('samples.csv has a line with the same number of fields for each load', async (t) => {
  const { folder } = await reportWith(t, []);
  const lines = readFileSync(join(folder, 'samples.csv'), 'utf8').split('\r\n');
  assert.equal(lines.pop(), '');
  assert.equal(lines.length, 1 + 8);
  const fields = lines.map((line) => line.split(',').length);
  assert.deepEqual([...new Set(fields)], [csvHead().split(',').length]);
  const [head, ...rows] = lines.map((line) => line.split(','));
  const time = rows.map((row) => row[head?.indexOf('load_seconds') ?? -1]);
  const samples = readFileSync(join(folder, 'samples.jsonl'), 'utf8').trim().split('\n');
  assert.deepEqual(
    time,
    samples.map((line) => String((JSON.parse(line) as Sample).times.load)),
  );
});

test('field with comma, quote or line break is quoted, and an unknown value is empty', () => {
  const sample = structuredClone(recorded('h2')) as Mutable<Sample>;
  Object.assign(sample, {
    arm: 'a "b", c',
    outcome: 'timeout',
    reason: 'one\ntwo',
    valid: false,
    times: {},
  });
  sample.invalidReasons = ['late'];
  const line = csvLine({
    ...sample,
    labels: (['rto', 'rto', 'hol-stall'] as const).map((kind) => ({ kind, detail: '' })),
  });
  assert.match(line, /,"a ""b"", c",h2,first,,cubic,pronghorn,\d+,false,timeout,,,,,,/);
  assert.ok(line.endsWith(',rto hol-stall,"one\ntwo; late"\r\n'), line);
});

test('race shows the watched loads where each arm has one, and otherwise the median loads', async (t) => {
  const lanes = ({ root }: { root: HTMLElement }): string[] =>
    root
      .querySelectorAll('.race .lane .small')
      .map(({ textContent }) => textContent.replace(/\s+/g, ' ').trim());
  const both = await reportWith(t, [1, 2]);
  assert.deepEqual(
    lanes(both).map((words) => words.slice(-'load 1, the rehearsal'.length)),
    ['load 1, the rehearsal', 'load 2, the rehearsal'],
  );
  assert.equal(both.root.querySelectorAll('.strip').length, 2);
  const one = await reportWith(t, [1]);
  assert.match(lanes(one).join(), /the median.*the median/);
  assert.equal(one.root.querySelectorAll('.strip, symbol').length, 0);
});

test('measured load with screenshots is preferred to a rehearsal', async (t) => {
  const { root } = await reportWith(t, [1, 2, 3, 4]);
  assert.match(root.querySelector('.race .lanes')?.textContent ?? '', /load 3, [^]*load 4, /);
});

test('screenshots are embedded once and shown at their times', async (t) => {
  const { root, folder } = await reportWith(t, [1, 2]);
  // The first picture is the same for both loads.
  assert.equal(root.querySelectorAll('symbol').length, 3);
  const ids = new Set(root.querySelectorAll('symbol').map((symbol) => `#${symbol.id}`));
  const used = root.querySelectorAll('use').map((use) => use.getAttribute('href') ?? '');
  assert.deepEqual(
    used.filter((href) => !ids.has(href)),
    [],
  );
  const first = root.querySelectorAll('.strip')[0]?.querySelectorAll('li') ?? [];
  const shown = first.map((each) => each.querySelector('use')?.getAttribute('href'));
  assert.deepEqual(shown.slice(0, 4), [undefined, used[0], used[0], used[1]]);
  assert.match(first.map(({ textContent }) => textContent).join(), /\d s\s*FCP/);
  const svg = readFileSync(join(folder, RACES, 'near.svg'), 'utf8');
  assert.equal(svg.match(/<image\s/g)?.length, 4);
});

test('race of loads without screenshots is also a file, and respects reduced motion', async (t) => {
  const { folder } = await reportWith(t, []);
  assert.deepEqual(readdirSync(join(folder, RACES)), ['near.svg']);
  const svg = readFileSync(join(folder, RACES, 'near.svg'), 'utf8');
  assert.match(
    svg,
    /prefers-reduced-motion: reduce\) \{ \.cover, \.moment \{ animation: none; \} \}/,
  );
  assert.doesNotMatch(svg, /<script|http:\/\/(?!www\.w3\.org\/2000\/svg")|https:|@import|url\(/);
});

test('screenshots over the size limit are left out, for all arms of a page or for none', (t) => {
  const folder = folderFor(t);
  for (const load of [1, 2, 3, 4]) writePictures(folder, load, [[0, jpeg(load, 1000)]]);
  const store = new PictureStore(folder, 3500);
  assert.deepEqual(store.loads(), new Set([1, 2, 3, 4]));
  assert.equal(store.ofAll([1, 2])?.length, 2);
  assert.equal(store.ofAll([3, 4]), undefined);
  assert.equal(store.leftOut, 2);
  assert.equal(store.ofAll([1, 3])?.length, 2);
});

test('of many screenshots the ones shown longest and the last are kept', (t) => {
  const folder = folderFor(t);
  const times = Array.from({ length: 60 }, (_, index) => index + (index % 2 === 0 ? 0 : -0.9));
  writePictures(
    folder,
    1,
    times.map((seconds, index) => [seconds, jpeg(index)] as const),
  );
  const frames = new PictureStore(folder).ofAll([1])?.[0]?.frames ?? [];
  assert.equal(frames.length, 40);
  assert.equal(frames.at(-1)?.seconds, times.at(-1));
  assert.equal(frames.filter(({ seconds }) => Number.isInteger(seconds)).length, 10);
});

test('unreadable screenshots are skipped', (t) => {
  const folder = folderFor(t);
  writePictures(folder, 1, [[0, Buffer.from('no picture')]]);
  assert.equal(new PictureStore(folder).ofAll([1]), undefined);
  writeFileSync(
    join(folder, 'traces/0001/screens/screens.json'),
    '[{"file":"../../secret.jpg","seconds":0}]',
  );
  assert.equal(new PictureStore(folder).ofAll([1]), undefined);
  assert.equal(jpegSize(jpeg(1).subarray(0, 12)), undefined);
  assert.deepEqual(jpegSize(jpeg(1)), { width: 40, height: 30 });
});

test('filmstrip has at most 16 screenshots, whatever the length', () => {
  for (const seconds of [0, 0.3, 1.5, 1.6, 4, 59, 60, 900, 5000]) {
    assert.ok(
      Math.ceil(seconds / stepOf(seconds)) + 1 <= 16,
      `${seconds} s in steps of ${stepOf(seconds)} s`,
    );
  }
  assert.equal(stepOf(1.5), 0.1);
  assert.equal(stepOf(6), 0.5);
});

test('points keep their heights and do not overlap while they fit', () => {
  const heights = Array.from({ length: 90 }, (_, index) => 100 + 7 * ((index * 37) % 10));
  const points = swarm(heights, 2, () => 30);
  assert.deepEqual(
    points.map(([, height]) => height).sort((a, b) => a - b),
    [...heights].sort((a, b) => a - b),
  );
  for (const [at, [x, height]] of points.entries()) {
    assert.ok(Math.abs(x) <= 30);
    for (const [x2, height2] of points.slice(at + 1)) {
      assert.ok(height !== height2 || Math.abs(x - x2) >= 4 - 1e-9, `${x} and ${x2} at ${height}`);
    }
  }
});

test('points that do not fit overlap evenly and stay within the shape', () => {
  const points = swarm(Array<number>(500).fill(50), 1, (height) => (height < 60 ? 10 : 0));
  const places = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
  assert.equal(points.length, 500);
  assert.ok(Math.min(...places) >= -10 && Math.max(...places) <= 10);
  assert.equal(places.length, 41);
});

/** Returns the relative luminance of `#rrggbb` according to WCAG 2.2. */
function luminance(colour: string): number {
  const parts = [1, 3, 5].map((from) => {
    const share = parseInt(colour.slice(from, from + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * (parts[0] ?? 0) + 0.7152 * (parts[1] ?? 0) + 0.0722 * (parts[2] ?? 0);
}

for (const scheme of ['light', 'dark'] as const) {
  test(`colours have the contrast that WCAG AA requires, ${scheme}`, () => {
    const colours = new Map(
      [...COLOURS[scheme].matchAll(/--([\w-]+): (#\w{6})/g)].map(([, name = '', value = '']) => [
        name,
        value,
      ]),
    );
    const contrast = (one: string, other: string): number => {
      const [a, b] = [one, other].map((name) => luminance(colours.get(name) ?? assert.fail(name)));
      return (Math.max(a ?? 0, b ?? 0) + 0.05) / (Math.min(a ?? 0, b ?? 0) + 0.05);
    };
    const arms = [...colours.keys()].filter((name) => name.startsWith('arm-'));
    const pairs: [string, string, number][] = [
      ...['text', 'soft', 'good', 'bad', 'running'].flatMap((name): [string, string, number][] => [
        [name, 'card', 4.5],
        [name, 'page', 4.5],
      ]),
      ['text', 'bad-page', 4.5],
      // 1.4.11: parts of controls and of drawings.
      ...[...arms, 'focus', 'edge'].map((name): [string, string, number] => [name, 'card', 3]),
      ['focus', 'page', 3],
    ];
    const low = pairs.filter(([one, other, least]) => contrast(one, other) < least);
    assert.deepEqual(
      low.map(([one, other]) => `${one} on ${other}: ${contrast(one, other).toFixed(2)}`),
      [],
    );
  });
}
