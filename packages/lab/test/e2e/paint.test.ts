import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'puppeteer-core';
import { findBrowser } from '../../src/run/browser.js';
import { closeBrowser } from '../../src/load/close.js';
import { LARGEST, pngImage } from '../../src/page/png.js';
import { generator } from '../../src/campaign/seed.js';
import { LONG_LOOK_MS, SHORT_LOOK_MS } from '../../src/samples/look.js';
import { prepareTimeline, readTimeline } from '../../src/load/page-timeline.js';
import { findConfinement, launchBrowser, makeFolderFor } from '../../src/run/sandbox.js';
import { removeFolder } from '../../src/io/scratch.js';
import { packageFolder } from '../places.js';
import { lab, samplesOf } from './lab.js';

/**
 * Paints of real pages as read by the lab: needs Chromium, and for a campaign `pronghorn` and
 * permission to create namespaces.
 */

async function openBrowser(t: TestContext): Promise<Page> {
  const folder = mkdtempSync(join(tmpdir(), 'lab-paint-'));
  // The browser's user needs access.
  chmodSync(folder, 0o755);
  const chromium = findBrowser(process.env.CHROMIUM).path;
  const confinement = await findConfinement(chromium, folder);
  const own = makeFolderFor(confinement, join(folder, 'browser-'));
  const browser = await launchBrowser({
    chromium,
    confinement,
    folder: own,
    args: ['--no-first-run', '--disable-gpu'],
  });
  t.after(async () => {
    await closeBrowser(browser);
    await removeFolder(folder);
  });
  return browser.newPage();
}

/** Serves one page whose text grows so long after the load event. */
async function serve(t: TestContext, growsAfterMs: number): Promise<string> {
  const html = `<!doctype html><p id=text style="font-size:20px">small</p><script>
addEventListener('load', () => setTimeout(() => {
  const large = document.createElement('p');
  large.style.fontSize = '90px';
  large.textContent = 'large text that comes later than the rest';
  document.body.append(large);
}, ${growsAfterMs}));</script>`;
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(html);
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  return new Promise((resolve) => {
    server.once('listening', () => {
      resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    });
  });
}

test('largest paint does not depend on how long a load is observed, and a later one is noted', async (t) => {
  const page = await openBrowser(t);
  await prepareTimeline(page);
  const url = await serve(t, SHORT_LOOK_MS + 300);
  for (const settleMs of [0, 2_500]) {
    await page.goto(url, { waitUntil: 'load' });
    await sleep(settleMs);
    const {
      largestContentfulPaintMs: largest = 0,
      latePaintsMs = [],
      navigation,
    } = await readTimeline(page, SHORT_LOOK_MS);
    assert.ok(navigation);
    const until = navigation.loadEventStart + SHORT_LOOK_MS;
    assert.ok(largest > 0 && largest <= until, `${largest} of ${until}`);
    if (settleMs > 0)
      assert.ok(latePaintsMs.length === 1 && (latePaintsMs[0] ?? 0) > until, latePaintsMs.join());
  }
});

test('larger paint soon after the load event counts, even if nothing else is pending', async (t) => {
  const page = await openBrowser(t);
  await prepareTimeline(page);
  await page.goto(await serve(t, SHORT_LOOK_MS / 5), { waitUntil: 'load' });
  const {
    largestContentfulPaintMs: largest = 0,
    latePaintsMs = [],
    navigation,
  } = await readTimeline(page, SHORT_LOOK_MS);
  assert.ok(navigation);
  // A machine that is too busy to draw it in time has it among the late ones.
  const seen = latePaintsMs[0] ?? largest;
  assert.ok(
    seen >= navigation.loadEventStart + SHORT_LOOK_MS / 5,
    `${seen} of ${navigation.loadEventStart}`,
  );
});

test('larger paint after the short observation time counts in the long one', async (t) => {
  const page = await openBrowser(t);
  await prepareTimeline(page);
  await page.goto(await serve(t, SHORT_LOOK_MS + 100), { waitUntil: 'load' });
  const {
    largestContentfulPaintMs: largest = 0,
    latePaintsMs = [],
    navigation,
    lookMs,
  } = await readTimeline(page, LONG_LOOK_MS);
  assert.ok(navigation);
  assert.equal(lookMs, LONG_LOOK_MS);
  // Late ones: see above.
  const seen = latePaintsMs[0] ?? largest;
  assert.ok(
    seen > navigation.loadEventStart + SHORT_LOOK_MS,
    `${seen} of ${navigation.loadEventStart}`,
  );
});

/**
 * Writes a page whose script requests its picture 450 ms after the load event, so that it comes at
 * about the end of the short observation time.
 */
function writeLatePage(site: string): void {
  mkdirSync(site);
  writeFileSync(join(site, 'late.png'), pngImage(100_000, generator(5), LARGEST));
  writeFileSync(
    join(site, 'index.html'),
    `<!doctype html><title>late</title><link rel="icon" href="data:,"><p>small</p><script>
addEventListener('load', () => setTimeout(() => {
  document.body.append(Object.assign(new Image(), { src: 'late.png' }));
}, 450));</script>`,
  );
}

test('image inserted by a script half a second after the load event counts over both protocols', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'lab-late-paint-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  // The browser's user needs access.
  chmodSync(folder, 0o755);
  writeLatePage(join(folder, 'site'));
  const arms = ['h2', 'h3'].map((name) => `[[arms]]\nname = "${name}"\nprotocol = "${name}"\n`);
  const plan = join(folder, 'late.toml');
  const link = join(packageFolder, 'test/fixtures/mild.toml');
  writeFileSync(
    plan,
    `name = "late"\nseed = 5\nblocks = 1\nprofiles = ["${link}"]\n[page]\nfolder = "site"\nrequests = 1\n${arms.join('')}`,
  );
  const out = join(folder, 'out');
  const run = lab(['run', plan, '--out', out]);
  const samples = samplesOf(out);
  assert.equal(samples.length, 4, run.stderr);
  for (const { browser, times, outcome } of samples) {
    assert.equal(outcome, 'completed', run.stderr);
    assert.ok(browser?.navigation);
    assert.equal(browser.lookMs, LONG_LOOK_MS);
    // Late ones: see above.
    const largestMs = browser.latePaintsMs?.[0] ?? 1000 * (times.largestContentfulPaint ?? 0);
    assert.ok(
      largestMs > browser.navigation.loadEventStart + 450,
      `${largestMs} of ${browser.navigation.loadEventStart}`,
    );
  }
  assert.match(
    run.stdout,
    /Paints count until 2000 ms after the start of the load event, in all arms/,
  );
});
