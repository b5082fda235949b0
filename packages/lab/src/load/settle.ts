import type { Completeness } from './expected.js';

/** How long to wait after a load's load event. */

/** The developer tools' last messages follow the load event by a few milliseconds. */
const MIN_MS = 1_000;

/** A load that had a load event; times in milliseconds on one clock. */
export interface Loaded {
  readonly startedMs: number;
  /** Time until the recorded page's load event; 0 without a recording. */
  readonly recordedMs: number;
  /** When the plan's time for the load ends. */
  readonly untilMs: number;
}

/**
 * The wait for requests that count: for those in flight as long as the load may take, and for
 * missing ones. The page may make missing requests by a timer or after another response. In the
 * recording it had made them before the load event, so no timer was longer than that whole load.
 * Over a slow arm the timer may start when the last request has ended, so the time is counted again
 * from there.
 */
export class Wait {
  #sinceMs: number;

  constructor(
    private readonly loaded: Loaded,
    nowMs: number,
  ) {
    this.#sinceMs = Math.max(nowMs, loaded.startedMs + loaded.recordedMs);
  }

  isOver({ pending, missing }: Pick<Completeness, 'pending' | 'missing'>, nowMs: number): boolean {
    const { recordedMs, untilMs } = this.loaded;
    if (pending) this.#sinceMs = Math.max(this.#sinceMs, nowMs);
    if (pending) return nowMs >= untilMs;
    return !missing || nowMs >= Math.min(untilMs, this.#sinceMs + Math.max(MIN_MS, recordedMs));
  }
}
