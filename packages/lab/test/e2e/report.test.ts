/// <reference lib="dom" />
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { pathToFileURL } from 'node:url';
import puppeteer, { type Browser, type Page } from 'puppeteer-core';
import { findBrowser } from '../../src/run/browser.js';
import { REPORT, writeReports } from '../../src/report/write-report.js';
import { generateCampaign } from '../generated.js';

/** The report of a campaign of 5,000 loads, in Chromium, without a network. */

const BLOCKS = 250;
const PLACES = { profiles: ['near', 'far'], pages: ['small', 'large'] };
const ARMS = { h1: 1.3, h2: 1, h3: 0.9, 'h2-again': 1, auto: 0.95 };
/**
 * Maximum size of the report without its pictures. A load's point takes 40 bytes, and the rest
 * hardly grows with the loads.
 */
const MOST_BYTES = 1_300_000;

const folder = mkdtempSync(join(tmpdir(), 'lab-report-e2e-'));
const report = join(folder, REPORT);
let browser: Browser;

before(async () => {
  browser = await puppeteer.launch({
    executablePath: findBrowser(process.env.CHROMIUM).path,
    args: ['--no-sandbox', '--host-resolver-rules=MAP * ~NOTFOUND'],
  });
  generateCampaign(folder, { ...PLACES, arms: ARMS, blocks: BLOCKS });
  await takePictures([1, 2, 3, 4, 5]);
  await writeReports(folder);
});

after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

/** Writes three pictures of a filling page for each of the given loads. */
async function takePictures(loads: readonly number[]): Promise<void> {
  const page = await browser.newPage();
  await page.setViewport({ width: 320, height: 240 });
  for (const load of loads) {
    const screens = join(folder, 'traces', String(load).padStart(4, '0'), 'screens');
    mkdirSync(screens, { recursive: true });
    const index = [];
    for (const filled of [0, 50, 100]) {
      await page.setContent(
        `<body style="margin:0"><p style="background:#36c;height:${filled}%">${load}, ${filled} %</p>`,
      );
      const file = `${filled}.jpg`;
      writeFileSync(join(screens, file), await page.screenshot({ type: 'jpeg', quality: 60 }));
      index.push({ file, seconds: 0.1 + filled / 400 });
    }
    writeFileSync(join(screens, 'screens.json'), JSON.stringify(index));
  }
  await page.close();
}

/** Opens the report; `requests` and `complaints` fill as it is used. */
async function open(
  width: number,
  scheme: 'light' | 'dark',
): Promise<{ page: Page; requests: string[]; complaints: string[] }> {
  const page = await browser.newPage();
  const requests: string[] = [];
  const complaints: string[] = [];
  page.on('request', (request) => {
    // A data URL makes no network request.
    if (!request.url().startsWith('data:')) requests.push(request.url());
  });
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(String(error)));
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.goto(pathToFileURL(report).href);
  return { page, requests, complaints };
}

/** Presses Tab until an element that `selector` matches has the focus. */
async function tabTo(page: Page, selector: string): Promise<void> {
  for (let presses = 0; presses < 100; presses++) {
    await page.keyboard.press('Tab');
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) === true, selector))
      return;
  }
  assert.fail(`no key press leads to ${selector}`);
}

const clockOf = (page: Page): Promise<string> =>
  page.$eval('.race .clock', ({ textContent }) => textContent);

test('report of 5,000 loads is small and has each load as a point', () => {
  const markup = readFileSync(report, 'utf8');
  const pictures = [...markup.matchAll(/data:image\/jpeg;base64,[^"]*/g)].reduce(
    (sum, [url]) => sum + url.length,
    0,
  );
  assert.ok(pictures > 0);
  const bytes = statSync(report).size - pictures;
  assert.ok(bytes < MOST_BYTES, `${bytes} bytes`);
  const points = [...markup.matchAll(/class="points"\s+d="([^"]*)"/g)].map(
    ([, path = '']) => path.split('M').length - 1,
  );
  assert.deepEqual(points, Array(20).fill(BLOCKS));
  const elements = markup.match(/<[a-z]/g)?.length ?? 0;
  assert.ok(elements < 8_000, `${elements} elements`);
});

for (const width of [360, 390, 1440]) {
  for (const scheme of ['light', 'dark'] as const) {
    test(`report is complete at ${width} pixels in ${scheme}, and requests nothing`, async () => {
      const { page, requests, complaints } = await open(width, scheme);
      const [wide, room] = await page.evaluate(() => [
        document.documentElement.scrollWidth,
        document.documentElement.clientWidth,
      ]);
      assert.equal(wide, room);
      if (process.env.SCREENSHOTS !== undefined) {
        const path = join(
          process.env.SCREENSHOTS,
          `report-${width}-${scheme}.png`,
        ) as `${string}.png`;
        await page.screenshot({ path, fullPage: true });
      }
      assert.deepEqual(requests, [pathToFileURL(report).href]);
      assert.deepEqual(complaints, []);
      await page.close();
    });
  }
}

test('race can be played, stopped and sought by keyboard, and does not start by itself', async () => {
  const { page, requests, complaints } = await open(1440, 'light');
  const end = await clockOf(page);
  await page.bringToFront();
  await tabTo(page, '.race button');
  assert.equal(await clockOf(page), end);
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    (last) => document.querySelector('.race .clock')?.textContent !== last,
    {},
    end,
  );
  assert.equal(await page.$eval('.race button', ({ textContent }) => textContent), 'Pause');
  // Runs to its end, from which it restarts.
  await page.waitForFunction(() => document.querySelector('.race button')?.textContent === 'Play');
  assert.equal(await clockOf(page), end);
  await tabTo(page, '.race input');
  await page.keyboard.press('Home');
  assert.equal(await clockOf(page), '0.00 s');
  assert.deepEqual(await shownPictures(page), [0, 0, 0, 0, 0]);
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await clockOf(page), '0.00 s');
  const focus = await page.evaluate(
    () => getComputedStyle(document.activeElement as Element).outlineStyle,
  );
  assert.equal(focus, 'solid');
  await page.keyboard.press('End');
  assert.equal(await clockOf(page), end);
  assert.deepEqual(await shownPictures(page), [1, 1, 1, 1, 1]);
  assert.deepEqual(requests, [pathToFileURL(report).href]);
  assert.deepEqual(complaints, []);
  await page.close();
});

/** Returns how many pictures each lane of the first race shows. */
function shownPictures(page: Page): Promise<number[]> {
  return page.$$eval('.race', ([race]) =>
    [...(race?.querySelectorAll('.lane') ?? [])].map(
      (lane) =>
        [...lane.querySelectorAll('[data-at]')].filter(
          (each) => getComputedStyle(each).visibility === 'visible',
        ).length,
    ),
  );
}

test('scrolling regions can be reached by keyboard', async () => {
  const { page } = await open(390, 'light');
  const unreachable = await page.$$eval('body *', (elements) =>
    elements
      .filter(
        (each) =>
          each.scrollWidth > each.clientWidth &&
          ['auto', 'scroll'].includes(getComputedStyle(each).overflowX),
      )
      .filter((each) => (each as HTMLElement).tabIndex < 0 || !each.hasAttribute('aria-label'))
      .map((each) => each.outerHTML.slice(0, 80)),
  );
  assert.deepEqual(unreachable, []);
  await page.close();
});
