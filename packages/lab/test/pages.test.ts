import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { isRecording, readRecording } from '../src/capture/recording.js';
import { LabError } from '../src/io/errors.js';
import { inspectPageFolder, writePage } from '../src/page/folder.js';
import { generatePage, type Page, type PageFile } from '../src/page/generate.js';
import { sizesOf } from '../src/page/sizes.js';
import { readPageSpec, type PageSpec } from '../src/page/spec.js';
import { generator } from '../src/campaign/seed.js';
import { packageFolder } from './places.js';

/** The package's pages, and invalid page specifications. */

const shipped = readdirSync(join(packageFolder, 'pages')).map((file) =>
  file.replace(/\.toml$/, ''),
);
const spec = (name: string): PageSpec =>
  readPageSpec(join(packageFolder, 'pages', `${name}.toml`)).value;

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-pages-test-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  return folder;
}

const median = (sizes: readonly number[]): number =>
  [...sizes].sort((a, b) => a - b)[Math.floor(sizes.length / 2)] ?? 0;

/**
 * Returns what a file names: `src`, `href` and `url()`, and what a script composes, relative to the
 * root of the file's host.
 */
function namedIn({ body, kind }: PageFile): string[] {
  const content = body.toString('latin1').replace(/(\/\*|<!--)[A-Za-z0-9+/=]{20,}(\*\/|-->)/g, '');
  const found = [
    ...content.matchAll(/(?:src|href)="([^"]+)"/g),
    ...content.matchAll(/url\("([^"]+)"\)/g),
    ...content.matchAll(/src: '([^']+)'/g),
  ];
  return found
    .map((match) => match[1] as string)
    .filter((name) => name !== 'data:,')
    .map((name) => (kind === 'stylesheet' ? name.replace(/^\.\.\//, '') : name));
}

/**
 * Maps each file of a page to the path of the file that names it. Fails if a file is named twice or
 * never.
 */
function parents(page: Page): Map<string, PageFile> {
  const hostOf = (file: PageFile): string =>
    file.origin === undefined ? page.host : `${file.origin}.${page.host}`;
  const found = new Map<string, PageFile>();
  for (const file of page.files) {
    if (file.kind === 'font' || file.kind === 'image') continue;
    // A script's URLs are relative to the document.
    const base = `https://${file.kind === 'script' ? page.host : hostOf(file)}/`;
    for (const name of namedIn(file)) {
      const url = new URL(name, base).href;
      assert.ok(!found.has(url), `${url} is named twice`);
      found.set(url, file);
    }
  }
  const expected = page.files.slice(1).map((file) => `https://${hostOf(file)}/${file.path}`);
  assert.deepEqual([...found.keys()].sort(), expected.sort());
  return found;
}

test('demo page has the same bytes as when its first results were published', () => {
  const { manifest } = generatePage(
    readPageSpec(join(packageFolder, 'plans/demo-page.toml')).value,
  );
  const hash = createHash('sha256').update(JSON.stringify(manifest)).digest('hex');
  assert.equal(hash, '1ef44c13160a3d4b426acc9716a0e0538031341ecc646eb807b0149d92724f07');
});

test('each bundled page is as its first line says, and each file is listed once', () => {
  const published = new Map<string, [requests: number, bytes: number]>(
    Object.entries({
      'almanac-p10': [24, 607_000],
      'almanac-p25': [42, 1_275_000],
      'almanac-p50': [74, 2_862_000],
      'almanac-p50-inner': [65, 1_963_000],
      'almanac-p75': [115, 4_570_000],
      'almanac-p90': [176, 9_179_000],
      'cloudflare-15k': [1, 15_000],
      'cloudflare-1m': [1, 1_000_000],
      'request-metrics-content': [105, 10_000_000],
      'request-metrics-small': [20, 600_000],
      'request-metrics-spa': [115, 15_000_000],
      'tencent-465k': [15, 465_000],
      'tencent-95k': [30, 95_000],
    }),
  );
  for (const name of shipped) {
    const read = spec(name);
    assert.equal(read.name, name);
    const page = generatePage(read);
    const { requests, bytes } = page.manifest;
    assert.deepEqual([requests, bytes], published.get(name) ?? [requests, bytes], name);
    parents(page);
  }
  assert.deepEqual(
    [...published.keys()].filter((name) => !shipped.includes(name)),
    [],
  );
});

test('page of one document consists of that document only', () => {
  const { files } = generatePage(spec('cloudflare-15k'));
  assert.equal(files.length, 1);
  assert.equal(files[0]?.body.length, 15_000);
});

test('chain is found step by step', () => {
  const page = generatePage(spec('chain'));
  const named = parents(page);
  const parent = (path: string): string | undefined =>
    named.get(`https://${page.host}/${path}`)?.path;
  const chain = [
    'js/script-4.js',
    'js/script-3.js',
    'js/script-2.js',
    'js/script-1.js',
    'js/script-0.js',
    'index.html',
  ];
  assert.deepEqual(chain.slice(0, -1).map(parent), chain.slice(1));
  assert.equal(parent('css/style-1.css'), 'css/style-0.css');
  // The largest picture is the fifth image of the page, after the four of the style sheets.
  assert.equal(parent('images/image-4.png'), 'js/script-3.js');
  for (const index of [0, 1, 2, 3])
    assert.match(parent(`images/image-${index}.png`) ?? '', /^css\//);
});

test('largest image has as many pixels as it is displayed with, and other images have few', () => {
  const { files } = generatePage(spec('chain'));
  const width = (path: string): number | undefined =>
    files.find((file) => file.path === path)?.body.readUInt32BE(16);
  assert.equal(width('images/image-4.png'), 960);
  assert.equal(width('images/image-5.png'), 24);
});

test('sizes with a median have that median, add up to the total and are skewed', () => {
  for (let seed = 0; seed < 20; seed++) {
    const sizes = sizesOf(
      { count: 23, total_bytes: 697_000, median_bytes: 4_600 },
      generator(seed),
    );
    assert.equal(
      sizes.reduce((a, b) => a + b, 0),
      697_000,
    );
    assert.ok(Math.abs(median(sizes) / 4_600 - 1) < 0.01, String(median(sizes)));
    const largest = [...sizes].sort((a, b) => b - a).slice(0, 3);
    assert.ok(largest.reduce((a, b) => a + b, 0) > 697_000 / 2);
  }
});

test('sizes with a median and a 90th percentile have both', () => {
  const sizes = sizesOf({ count: 999, median_bytes: 8_000, p90_bytes: 183_000 }, generator(1)).sort(
    (a, b) => a - b,
  );
  assert.ok(Math.abs((sizes[499] ?? 0) / 8_000 - 1) < 0.01);
  assert.ok(Math.abs((sizes[899] ?? 0) / 183_000 - 1) < 0.02);
  assert.deepEqual(
    new Set(sizesOf({ count: 7, median_bytes: 5_000, p90_bytes: 5_000 }, generator(1))),
    new Set([5_000]),
  );
});

test('sizes have another order with another seed', () => {
  const group = { count: 20, total_bytes: 400_000, median_bytes: 8_000 };
  const [one, other] = [sizesOf(group, generator(1)), sizesOf(group, generator(2))];
  assert.notDeepEqual(one, other);
  assert.deepEqual(one.sort(), other.sort());
});

test('page on several hosts is a recording of all of them, with the bytes on disk', (t) => {
  const folder = join(folderFor(t), 'page');
  const page = generatePage(spec('three-hosts'), 'site.test');
  writePage(page, folder);
  assert.ok(isRecording(folder));
  const { url, requests, bytes, origins, recording } = readRecording(folder);
  assert.equal(url, 'https://site.test/');
  assert.equal(requests, page.manifest.requests);
  assert.equal(bytes, page.manifest.bytes);
  assert.deepEqual(origins, ['site.test:443', 'static.site.test:443', 'images.site.test:443']);
  for (const { body } of recording.entries) {
    assert.ok(body);
    const content = readFileSync(join(folder, body.file));
    assert.equal(createHash('sha256').update(content).digest('hex'), body.sha256);
  }
  assert.equal(inspectPageFolder(folder, undefined).requests, requests);
});

test('page on one host is not a recording', (t) => {
  const folder = join(folderFor(t), 'page');
  writePage(generatePage(spec('tencent-12')), folder);
  assert.equal(isRecording(folder), false);
});

test('impossible specification is rejected at its key', (t) => {
  const path = join(folderFor(t), 'bad.toml');
  const refused = (table: string, says: RegExp): void => {
    const top = '[[resources]]\nkind = "script"\ncount = 2\ntotal_bytes = 20_000\n';
    writeFileSync(
      path,
      `name = "bad"\nseed = 1\nhtml_bytes = 9_000\n${top}[[resources]]\n${table}`,
    );
    assert.throws(
      () => readPageSpec(path),
      (thrown) => thrown instanceof LabError && thrown.exitCode === 65 && says.test(thrown.message),
      table,
    );
  };
  const images = 'kind = "image"\ncount = 4\n';
  refused(images, /`resources\[1\]\.total_bytes`: is missing/);
  refused(`${images}p90_bytes = 9_000`, /p90_bytes`: requires `median_bytes`/);
  refused(
    `${images}median_bytes = 9_000`,
    /median_bytes`: requires either `total_bytes` or `p90_bytes`/,
  );
  refused(`${images}median_bytes = 9_000\np90_bytes = 8_000`, /p90_bytes`: must not be less/);
  refused(`${images}median_bytes = 9_000\ntotal_bytes = 30_000`, /must not be more than the mean/);
  refused(
    'kind = "image"\ncount = 2\nmedian_bytes = 2_000\ntotal_bytes = 30_000',
    /a group of at least 3 resources/,
  );
  refused(
    `${images}total_bytes = 40_000\ndiscovered_by = "stylesheet"`,
    /requires a group of style sheets/,
  );
  refused(
    `${images}total_bytes = 40_000\ndiscovered_by = "script"\ndepth = 2`,
    /depth`: must be 1 or less/,
  );
  refused(
    `${images}total_bytes = 40_000\ndepth = 2`,
    /depth`: requires `discovered_by = "script"`/,
  );
  refused(
    `${images}total_bytes = 40_000\nlargest = true`,
    /largest`: requires a group of exactly one image/,
  );
  refused('kind = "image"\ncount = 1\ntotal_bytes = 3_000\nlargest = true', /at least 4096/);
  refused('kind = "font"\ncount = 1\ntotal_bytes = 9_000', /requires a group of style sheets/);
  refused(
    'kind = "font"\ncount = 1\ntotal_bytes = 9_000\ndiscovered_by = "script"',
    /of a font must be "stylesheet"/,
  );
  refused(
    `${images}total_bytes = 40_000\norigin = "CDN.example"`,
    /lower-case letters, digits or dashes/,
  );
  refused(
    'kind = "script"\ncount = 2\ntotal_bytes = 9_000\ndiscovered_by = "script"\ndepth = 3',
    /not be more than `count`/,
  );
});
