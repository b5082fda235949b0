import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, type TestContext } from 'node:test';
import puppeteer, { type HTTPRequest } from 'puppeteer-core';
import { findBrowser } from '../../src/run/browser.js';
import { isRecording } from '../../src/capture/recording.js';
import { writePage } from '../../src/page/folder.js';
import { generatePage, type Page } from '../../src/page/generate.js';
import { readPageSpec } from '../../src/page/spec.js';
import { packageFolder } from '../places.js';
import { startServer } from './server.js';

/** Loads generated pages with the real browser: needs `pronghorn` and Chromium. */

const folder = mkdtempSync(join(tmpdir(), 'lab-pages-e2e-'));
after(() => {
  rmSync(folder, { recursive: true });
});

interface Resource {
  readonly name: string;
  readonly nextHopProtocol: string;
  readonly encodedBodySize: number;
  readonly initiatorType: string;
  readonly startTime: number;
  readonly responseEnd: number;
}

interface Loaded {
  readonly requests: readonly string[];
  readonly failed: readonly string[];
  readonly resources: readonly Resource[];
  readonly protocol: string;
  readonly loadEventStart: number;
  readonly largest: { readonly url: string; readonly size: number } | null;
  readonly fonts: number;
}

// Text, because the lab is compiled without the browser's types.
const READ = `(async () => {
  const [navigation] = performance.getEntriesByType('navigation');
  const largest = await new Promise((resolve) => {
    const seen = [];
    new PerformanceObserver((list) => seen.push(...list.getEntries()))
      .observe({ type: 'largest-contentful-paint', buffered: true });
    // The last picture is painted a frame or two after the load event, on a busy machine seconds.
    const look = (left) => {
      const last = seen.at(-1);
      if (last?.url || left === 0) resolve(last ? { url: last.url, size: last.size } : null);
      else setTimeout(look, 50, left - 1);
    };
    look(200);
  });
  return {
    resources: performance.getEntriesByType('resource').map((entry) => entry.toJSON()),
    protocol: navigation.nextHopProtocol,
    loadEventStart: navigation.loadEventStart,
    largest,
    fonts: [...document.fonts].filter((font) => font.status === 'loaded').length,
  };
})()`;

async function load(
  t: TestContext,
  name: string,
  flags: readonly string[],
): Promise<[Page, Loaded]> {
  const site = join(folder, name);
  const page = generatePage(readPageSpec(join(packageFolder, 'pages', `${name}.toml`)).value);
  writePage(page, site);
  const { address, spki } = await startServer(
    t,
    isRecording(site) ? 'replay' : 'serve',
    site,
    folder,
  );
  const browser = await puppeteer.launch({
    executablePath: findBrowser(process.env.CHROMIUM).path,
    headless: true,
    pipe: true,
    userDataDir: join(site, 'profile'),
    args: [
      '--no-sandbox', // only our own page is loaded
      '--disable-background-networking',
      `--host-resolver-rules=MAP *.test ${address}, MAP * ~NOTFOUND`,
      `--ignore-certificate-errors-spki-list=${spki}`,
      ...flags,
    ],
  });
  try {
    const tab = (await browser.pages())[0] ?? (await browser.newPage());
    const requests: string[] = [];
    const failed: string[] = [];
    const overNetwork = (request: HTTPRequest): boolean => !request.url().startsWith('data:');
    tab.on('request', (request) => {
      if (overNetwork(request)) requests.push(request.url());
    });
    tab.on('requestfailed', (request) => {
      failed.push(request.url());
    });
    tab.on('response', (response) => {
      if (!response.ok()) failed.push(`${response.status()} ${response.url()}`);
    });
    await tab.goto(`https://${page.host}/`, { waitUntil: 'load' });
    const timeline = (await tab.evaluate(READ)) as Omit<Loaded, 'requests' | 'failed'>;
    return [page, { ...timeline, requests, failed }];
  } finally {
    await browser.close();
  }
}

test('browser requests each file of a page once, and finds the chain step by step before the load event', async (t) => {
  const [page, seen] = await load(t, 'chain', ['--disable-quic']);
  assert.deepEqual(seen.failed, []);
  const expected = page.files.map(
    ({ kind, path }) => `https://${page.host}/${kind === 'document' ? '' : path}`,
  );
  assert.deepEqual([...seen.requests].sort(), expected.sort());
  assert.equal(seen.fonts, 2);
  const entry = (path: string): Resource => {
    const found = seen.resources.find((resource) => resource.name.endsWith(`/${path}`));
    assert.ok(found, path);
    return found;
  };
  const chain = [0, 1, 2, 3, 4].map((index) => entry(`js/script-${index}.js`));
  for (const [at, each] of chain.entries()) {
    if (at > 0) assert.ok(each.startTime >= (chain[at - 1] as Resource).responseEnd, each.name);
  }
  assert.ok(entry('images/image-4.png').startTime >= (chain[3] as Resource).responseEnd);
  for (const { name, responseEnd } of seen.resources)
    assert.ok(responseEnd <= seen.loadEventStart, name);
  // The picture that is found last is the largest contentful paint.
  const { largest } = seen;
  assert.match(largest?.url ?? '', /\/images\/image-4\.png$/);
  assert.ok((largest?.size ?? 0) > 200_000, String(largest?.size));
});

test('page on three hosts is served over HTTP/3 by one server, with readable timings', async (t) => {
  const hosts = ['', 'static.', 'images.'].map((name) => `${name}bench.test:443`);
  const [page, seen] = await load(t, 'three-hosts', [
    `--origin-to-force-quic-on=${hosts.join(',')}`,
  ]);
  assert.deepEqual(seen.failed, []);
  assert.equal(seen.protocol, 'h3');
  const read = new Map(seen.resources.map((each) => [each.name, each]));
  for (const { path, origin, kind, body } of page.files.slice(1)) {
    const name = `https://${origin === undefined ? '' : `${origin}.`}bench.test/${path}`;
    // Sizes and protocols of other hosts require their permission.
    assert.deepEqual(
      [read.get(name)?.encodedBodySize, read.get(name)?.nextHopProtocol],
      [body.length, 'h3'],
      kind,
    );
  }
  assert.equal(seen.fonts, 2);
});
