import type { CDPSession, Page } from 'puppeteer-core';
import type { NavigationEntry, TimelineEntry } from '../samples/sample.js';

/** The page's own report of its load. */
export interface Timeline {
  /** Start of navigation in wall-clock time. */
  readonly timeOriginMs?: number;
  readonly navigation?: NavigationEntry;
  readonly resources: readonly TimelineEntry[];
  readonly firstContentfulPaintMs?: number;
  readonly largestContentfulPaintMs?: number;
  /** Larger paints that came too late to count. */
  readonly latePaintsMs?: readonly number[];
  /** Paints count until this long after the start of the load event. */
  readonly lookMs?: number;
}

/** Number of resource entries to keep; the browser's default is 250. */
const RESOURCE_ENTRIES = 20_000;
/** Maximum wait for `loadEventEnd`, which stays 0 while the load event's handlers run. */
const HANDLERS_WAIT_MS = 500;
/** Delay of paint reports: another process sends them after the paint was shown. */
const PAINT_DELIVERY_MS = 100;
/** Maximum wait for a frame: a hidden page has none. */
const FRAMES_WAIT_MS = 1_000;
const ANSWER_WAIT_MS = 5_000;

/**
 * Enlarges the browser's buffer of resource entries for large pages. Call before the navigation.
 */
export async function prepareTimeline(page: Page): Promise<void> {
  await page.evaluateOnNewDocument(`performance.setResourceTimingBufferSize(${RESOURCE_ENTRIES})`);
}

/** The page's report, before it is decided which paints count. */
interface Seen extends Omit<
  Timeline,
  'firstContentfulPaintMs' | 'largestContentfulPaintMs' | 'latePaintsMs' | 'lookMs'
> {
  readonly firstPaintMs?: number;
  /** Each larger than the previous ones. */
  readonly largestPaintsMs?: readonly number[];
}

// Runs in the page. It is text, not a function: the lab is compiled without the browser's types.
const readTimelineScript = (lookMs: number): string => `(async () => {
  // Without a document this is the empty tab, or the browser's own error page.
  if (!/^https?:/.test(location.protocol)) return { resources: [] };
  const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const until = performance.now() + ${HANDLERS_WAIT_MS};
  const navigation = () => performance.getEntriesByType('navigation')[0];
  const loaded = () => document.readyState === 'complete';
  while (loaded() && navigation().loadEventEnd === 0 && performance.now() < until) await sleep(5);
  if (loaded()) {
    await sleep(Math.max(0, navigation().loadEventStart + ${lookMs} - performance.now()));
    await Promise.race([frame().then(frame), sleep(${FRAMES_WAIT_MS})]);
    await sleep(${PAINT_DELIVERY_MS});
  }
  const largest = await new Promise((resolve) => {
    const observer = new PerformanceObserver((list) => resolve(list.getEntries()));
    observer.observe({ type: 'largest-contentful-paint', buffered: true });
    setTimeout(resolve, 50, []);
  });
  return {
    timeOriginMs: performance.timeOrigin,
    navigation: navigation()?.toJSON(),
    resources: performance.getEntriesByType('resource').map((entry) => entry.toJSON()),
    firstPaintMs: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,
    largestPaintsMs: largest.map(({ startTime }) => startTime),
  };
})()`;

/**
 * Reads the timeline of the page; empty if the page does not answer because it hangs or never
 * loaded. The page is observed until `lookMs` after the start of its load event.
 */
export async function readTimeline(page: Page, lookMs: number): Promise<Timeline> {
  const answer = page
    .evaluate(readTimelineScript(lookMs))
    .then((seen) => withPaints(seen as Seen, lookMs));
  return (await inTime(answer, lookMs + ANSWER_WAIT_MS)) ?? { resources: [] };
}

/**
 * Decides which paints count: those until `lookMs` after the start of the load event, even if the
 * page was observed for longer because its last requests came late. Without a load event all of
 * them count: each arm has the same time for it.
 */
export function withPaints(
  { firstPaintMs, largestPaintsMs = [], ...rest }: Seen,
  lookMs: number,
): Timeline {
  const loadEventMs = rest.navigation?.loadEventStart ?? 0;
  const untilMs = loadEventMs === 0 ? Infinity : loadEventMs + lookMs;
  const counted = largestPaintsMs.filter((at) => at <= untilMs).at(-1);
  const late = largestPaintsMs.filter((at) => at > untilMs);
  return {
    ...rest,
    ...(firstPaintMs !== undefined &&
      firstPaintMs <= untilMs && { firstContentfulPaintMs: firstPaintMs }),
    ...(counted !== undefined && { largestContentfulPaintMs: counted }),
    ...(late.length > 0 && { latePaintsMs: late }),
    lookMs,
  };
}

/**
 * Returns when the load event began, on the system's monotonic clock in milliseconds. The developer
 * tools report only its end, by which time its handlers may have sent requests.
 */
export async function readLoadEvent(page: Page, session: CDPSession): Promise<number | undefined> {
  const start = 'performance.getEntriesByType("navigation")[0]?.loadEventStart';
  const [navigation, after] = await Promise.all([
    readNavigationStart(session),
    inTime(page.evaluate(start).then((milliseconds) => milliseconds as number | undefined)),
  ]);
  return navigation === undefined || after === undefined || after === 0
    ? undefined
    : navigation + after;
}

/** Returns the start of navigation on the system's monotonic clock, in milliseconds. */
export async function readNavigationStart(session: CDPSession): Promise<number | undefined> {
  const answer = await inTime(
    session.send('Performance.enable').then(() => session.send('Performance.getMetrics')),
  );
  const seconds = answer?.metrics.find(({ name }) => name === 'NavigationStart')?.value;
  return seconds === undefined || seconds === 0 ? undefined : seconds * 1000;
}

/** Returns the answer of a page or its renderer; undefined on an error or a timeout. */
export async function inTime<T>(
  answer: Promise<T>,
  milliseconds = ANSWER_WAIT_MS,
): Promise<T | undefined> {
  const late = new Promise<undefined>((resolve) => {
    setTimeout(resolve, milliseconds, undefined).unref();
  });
  return Promise.race([answer.catch(() => undefined), late]);
}
