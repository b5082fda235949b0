import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { deflateSync } from 'node:zlib';
import { parse } from 'node-html-parser';
import { inspectPageFolder, writePage } from '../src/page/folder.js';
import { generatePage, type Page } from '../src/page/generate.js';
import { readPageSpec, requestCount, type PageSpec } from '../src/page/spec.js';
import { packageFolder } from './places.js';

const demo = readPageSpec(join(packageFolder, 'plans/demo-page.toml')).value;

const bodies = (page: Page): string[] =>
  page.files.map(({ path, body }) => `${path} ${body.toString('base64')}`);

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-page-test-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  return folder;
}

test('demo page has 32 requests and exactly the bytes in its specification', () => {
  const page = generatePage(demo);
  const asked = demo.resources.reduce(
    (sum, group) => sum + (group.total_bytes ?? 0),
    demo.html_bytes,
  );
  assert.equal(page.files.length, 32);
  assert.equal(requestCount(demo), 32);
  assert.equal(
    page.files.reduce((sum, { body }) => sum + body.length, 0),
    asked,
  );
  assert.equal(asked, 300_000);
  assert.equal(page.manifest.bytes, asked);
});

test('each group has exactly its bytes for any seed', () => {
  for (let seed = 0; seed < 20; seed++) {
    const page = generatePage({ ...demo, seed });
    for (const { kind, count, total_bytes: total } of demo.resources) {
      const files = page.files.filter((file) => file.kind === kind);
      assert.equal(files.length, count);
      assert.equal(
        files.reduce((sum, { body }) => sum + body.length, 0),
        total,
      );
    }
  }
});

test('same specification gives the same bytes, and another seed gives others', () => {
  assert.deepEqual(bodies(generatePage(demo)), bodies(generatePage(demo)));
  const other = bodies(generatePage({ ...demo, seed: demo.seed + 1 }));
  const equal = bodies(generatePage(demo)).filter((body, at) => body === other[at]);
  assert.deepEqual(equal, []);
});

test('document requests each resource once, directly or through a style sheet, and nothing else', () => {
  const { files } = generatePage(demo);
  const text = (path: string): string =>
    files.find((file) => file.path === path)?.body.toString('latin1') ?? '';
  const root = parse(text('index.html'));
  const direct = [
    ...root.querySelectorAll('link[rel=stylesheet]').map((link) => link.getAttribute('href')),
    ...root.querySelectorAll('script').map((script) => script.getAttribute('src')),
    ...root.querySelectorAll('img').map((image) => image.getAttribute('src')),
  ];
  const sheets = files.filter(({ kind }) => kind === 'stylesheet').map(({ path }) => text(path));
  const fonts = sheets.flatMap((sheet) =>
    [...sheet.matchAll(/url\("\.\.\/([^"]+)"\)/g)].map((match) => match[1]),
  );
  const asked = ['index.html', ...direct, ...fonts].sort();
  assert.deepEqual(asked, files.map(({ path }) => path).sort());
  assert.equal(root.querySelector('link[rel=icon]')?.getAttribute('href'), 'data:,');
  assert.doesNotMatch(text('index.html'), /https?:/);
});

test('bodies hardly compress', () => {
  for (const { path, kind, body } of generatePage(demo).files) {
    // Base64 text carries six bits in eight; images and fonts contain noise.
    const share = deflateSync(body).length / body.length;
    assert.ok(share > (kind === 'image' || kind === 'font' ? 0.93 : 0.65), `${path}: ${share}`);
  }
});

test('sizes within a group differ', () => {
  const sizes = generatePage(demo)
    .files.filter(({ kind }) => kind === 'image')
    .map(({ body }) => body.length);
  assert.ok(new Set(sizes).size > sizes.length / 2);
});

test('resources of the smallest permitted size can be generated', () => {
  const kinds = ['stylesheet', 'script', 'font', 'image'] as const;
  const resources = kinds.map((kind) => ({ kind, count: 3, total_bytes: 3 * 2048 }));
  for (let seed = 0; seed < 50; seed++) {
    const spec: PageSpec = { name: 'small', seed, html_bytes: 2048, resources };
    assert.equal(generatePage(spec).files.length, 13);
  }
});

test('document that is too small for its own links is rejected with the size that it needs', () => {
  const spec: PageSpec = { ...demo, html_bytes: 1024 };
  let needed = 0;
  assert.throws(
    () => generatePage(spec),
    (error: Error) => {
      needed = Number(/needs (\d+) bytes/.exec(error.message)?.[1]);
      return needed > 1024;
    },
  );
  assert.equal(generatePage({ ...spec, html_bytes: needed }).files[0]?.body.length, needed);
});

test('written page is read back with the same facts', (t) => {
  const folder = join(folderFor(t), 'page');
  const page = generatePage(demo);
  writePage(page, folder);
  for (const { path, body } of page.files) assert.deepEqual(readFileSync(join(folder, path)), body);
  const facts = inspectPageFolder(folder, undefined);
  assert.equal(facts.requests, 32);
  assert.equal(facts.bytes, 300_000);
});

test('page does not overwrite existing files, and leaves none when it cannot be written', (t) => {
  const folder = folderFor(t);
  writeFileSync(join(folder, 'mine'), 'text');
  assert.throws(() => {
    writePage(generatePage(demo), folder);
  }, /is not empty/);
  assert.deepEqual(readdirSync(folder), ['mine']);
  assert.throws(() => {
    writePage(generatePage(demo), join(folder, 'mine', 'page'));
  }, /cannot (create|write)/);
  assert.deepEqual(readdirSync(folder), ['mine']);
});

test('external page folder needs the number of its requests', (t) => {
  const folder = folderFor(t);
  assert.throws(() => inspectPageFolder(folder, 3), /no index\.html/);
  writeFileSync(join(folder, 'index.html'), '<p>hello');
  assert.throws(() => inspectPageFolder(folder, undefined), /number of its requests is unknown/);
  assert.deepEqual(inspectPageFolder(folder, 3).requests, 3);
});

test('plan that contradicts the manifest is rejected', (t) => {
  const folder = join(folderFor(t), 'page');
  writePage(generatePage(demo), folder);
  assert.throws(() => inspectPageFolder(folder, 31), /sets `requests = 31`/);
});
