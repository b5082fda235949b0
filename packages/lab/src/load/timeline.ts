import type { Page } from 'puppeteer-core';
import type { NavigationEntry, TimelineEntry } from '../sample.js';

/** What the page itself can say of its load. */
export interface Timeline {
  readonly navigation?: NavigationEntry;
  readonly resources: readonly TimelineEntry[];
  readonly firstContentfulPaintMs?: number;
  readonly largestContentfulPaintMs?: number;
}

/** The browser keeps 250 resource entries unless told otherwise. */
const RESOURCE_ENTRIES = 20_000;
/** A paint follows a load event by a frame or two; a page that paints nothing has no paint to wait for. */
const PAINT_WAIT_MS = 500;
const ANSWER_WAIT_MS = 5_000;

/** Makes room for the resource entries of large pages. Call before the navigation. */
export async function prepareTimeline(page: Page): Promise<void> {
  await page.evaluateOnNewDocument(`performance.setResourceTimingBufferSize(${RESOURCE_ENTRIES})`);
}

// Runs in the page. It is text, not a function: the lab is compiled without the browser's types.
const READ_TIMELINE = `(async () => {
  const until = performance.now() + ${PAINT_WAIT_MS};
  const navigation = () => performance.getEntriesByType('navigation')[0];
  const paint = () => performance.getEntriesByName('first-contentful-paint')[0];
  const loaded = () => document.readyState === 'complete';
  // loadEventEnd stays 0 while the handlers of the load event run.
  while (loaded() && (navigation().loadEventEnd === 0 || !paint()) && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const largest = await new Promise((resolve) => {
    const observer = new PerformanceObserver((list) => resolve(list.getEntries().at(-1)));
    observer.observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(resolve, 50);
  });
  return {
    navigation: navigation()?.toJSON(),
    resources: performance.getEntriesByType('resource').map((entry) => entry.toJSON()),
    firstContentfulPaintMs: paint()?.startTime,
    largestContentfulPaintMs: largest?.startTime,
  };
})()`;

/** Reads the timeline of the page, or an empty one if the page does not answer (it hangs, or never came). */
export async function readTimeline(page: Page): Promise<Timeline> {
  const empty: Timeline = { resources: [] };
  const answer = page.evaluate(READ_TIMELINE).then((timeline) => timeline as Timeline);
  const late = new Promise<Timeline>((resolve) => {
    setTimeout(resolve, ANSWER_WAIT_MS, empty).unref();
  });
  return Promise.race([answer.catch(() => empty), late]);
}
