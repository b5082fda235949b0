import type { CDPSession, Page } from 'puppeteer-core';
import type { NavigationEntry, TimelineEntry } from '../sample.js';

/** What the page itself can say of its load. */
export interface Timeline {
  /** The start of the navigation on the clock of the day. */
  readonly timeOriginMs?: number;
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
  // Where no document came there is the empty tab, or a page of the browser's own that says so.
  if (!/^https?:/.test(location.protocol)) return { resources: [] };
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
    timeOriginMs: performance.timeOrigin,
    navigation: navigation()?.toJSON(),
    resources: performance.getEntriesByType('resource').map((entry) => entry.toJSON()),
    firstContentfulPaintMs: paint()?.startTime,
    largestContentfulPaintMs: largest?.startTime,
  };
})()`;

/** Reads the timeline of the page, or an empty one if the page does not answer (it hangs, or never came). */
export async function readTimeline(page: Page): Promise<Timeline> {
  const answer = page.evaluate(READ_TIMELINE).then((timeline) => timeline as Timeline);
  return (await inTime(answer)) ?? { resources: [] };
}

/**
 * When the load event began, on the system's monotonic clock in milliseconds. The developer tools' own event tells when it ended,
 * and its handlers may have sent requests by then.
 */
export async function readLoadEvent(page: Page, session: CDPSession): Promise<number | undefined> {
  const start = 'performance.getEntriesByType("navigation")[0]?.loadEventStart';
  const [navigation, after] = await Promise.all([
    readNavigationStart(session),
    inTime(page.evaluate(start).then((milliseconds) => milliseconds as number | undefined)),
  ]);
  return navigation === undefined || after === undefined || after === 0 ? undefined : navigation + after;
}

/** The start of the navigation on the system's monotonic clock, in milliseconds. */
export async function readNavigationStart(session: CDPSession): Promise<number | undefined> {
  const answer = await inTime(session.send('Performance.enable').then(() => session.send('Performance.getMetrics')));
  const seconds = answer?.metrics.find(({ name }) => name === 'NavigationStart')?.value;
  return seconds === undefined || seconds === 0 ? undefined : seconds * 1000;
}

/** What a page or its renderer says, or undefined if it refuses or says nothing. */
export async function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  const late = new Promise<undefined>((resolve) => {
    setTimeout(resolve, ANSWER_WAIT_MS, undefined).unref();
  });
  return Promise.race([answer.catch(() => undefined), late]);
}
