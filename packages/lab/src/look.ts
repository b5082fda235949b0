import type { BrowserSide, Sample } from './sample.js';
import { REHEARSAL, type ScheduledLoad } from './schedule.js';

/** Paints count until so long after the start of the load event: the last content to come is painted a frame or two after it. */
export const SHORT_LOOK_MS = 500;
/** The same in rehearsals, and in all loads of a page that has shown late paints in one of them. */
export const LONG_LOOK_MS = 2_000;
/** What comes so late in one load may come after the short look in another one, over a slower arm. */
const LATE_MS = SHORT_LOOK_MS / 2;

/**
 * How long the loads of each page are looked at. It is the same for all arms and profiles of a page, since otherwise the arm whose largest
 * paint comes too late would show an earlier, smaller one, and look faster. The page's rehearsals decide it, which come before all
 * measured loads: to look long at each load would cost more time than most loads take.
 */
export class Looks {
  readonly #late = new Set<string>();

  add({ block, page, browser }: Pick<Sample, 'block' | 'page' | 'browser'>): void {
    if (block === REHEARSAL && browser !== undefined && hasLatePaint(browser)) this.#late.add(page);
  }

  /** Milliseconds after the start of the load event. */
  lookMs({ block, page }: Pick<ScheduledLoad, 'block' | 'page'>): number {
    return block === REHEARSAL || this.#late.has(page) ? LONG_LOOK_MS : SHORT_LOOK_MS;
  }
}

/** The look that a load had. Samples of earlier versions do not say it: theirs was short. */
export function lookOf({ lookMs = SHORT_LOOK_MS }: Pick<BrowserSide, 'lookMs'>): number {
  return lookMs;
}

function hasLatePaint(browser: BrowserSide): boolean {
  const { navigation, documentFault, largestContentfulPaintMs = 0, latePaintsMs = [] } = browser;
  const loadEventMs = navigation?.loadEventStart ?? 0;
  // An error page's paints are not the page's. A campaign that an earlier version began goes on with the look that its loads had.
  if (loadEventMs === 0 || documentFault !== undefined || lookOf(browser) < LONG_LOOK_MS) return false;
  return latePaintsMs.length > 0 || largestContentfulPaintMs > loadEventMs + LATE_MS;
}
