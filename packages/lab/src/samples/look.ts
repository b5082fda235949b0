import type { BrowserSide, Sample } from './sample.js';
import { REHEARSAL, type ScheduledLoad } from '../campaign/schedule.js';

/**
 * Default observation time: paints count until this long after the start of the load event. The
 * last content to arrive is painted a frame or two after it.
 */
export const SHORT_LOOK_MS = 500;
/**
 * Observation time in rehearsals, and in all loads of a page that had late paints in one of them.
 */
export const LONG_LOOK_MS = 2_000;
/**
 * Delay from which a rehearsal's paint is late: in another load, over a slower arm, it might come
 * after the short observation time.
 */
const LATE_MS = SHORT_LOOK_MS / 2;

/**
 * The observation time of each page's loads. It is the same for all arms and profiles of a page;
 * otherwise the arm whose largest paint comes too late would have an earlier, smaller one, and look
 * faster. The page's rehearsals decide it, before all measured loads: observing each load for the
 * long time would cost more than most loads take.
 */
export class Looks {
  readonly #late = new Set<string>();

  add({ block, page, browser }: Pick<Sample, 'block' | 'page' | 'browser'>): void {
    if (block === REHEARSAL && browser !== undefined && hasLatePaint(browser)) this.#late.add(page);
  }

  /** Returns milliseconds after the start of the load event. */
  lookMs({ block, page }: Pick<ScheduledLoad, 'block' | 'page'>): number {
    return block === REHEARSAL || this.#late.has(page) ? LONG_LOOK_MS : SHORT_LOOK_MS;
  }
}

/**
 * Returns the observation time of a load. Samples of earlier versions lack it: theirs was short.
 */
export function lookOf({ lookMs = SHORT_LOOK_MS }: Pick<BrowserSide, 'lookMs'>): number {
  return lookMs;
}

function hasLatePaint(browser: BrowserSide): boolean {
  const { navigation, documentFault, largestContentfulPaintMs = 0, latePaintsMs = [] } = browser;
  const loadEventMs = navigation?.loadEventStart ?? 0;
  // An error page's paints are not the page's. A campaign begun by an earlier version keeps the
  // observation time that its loads had.
  if (loadEventMs === 0 || documentFault !== undefined || lookOf(browser) < LONG_LOOK_MS)
    return false;
  return latePaintsMs.length > 0 || largestContentfulPaintMs > loadEventMs + LATE_MS;
}
