import type { Completeness } from './expected.js';

/** How long a load is waited for after its load event. */

/** The developer tools' last messages follow the load event by a few milliseconds. */
const LEAST_MS = 1_000;

/** Of a load with a load event, in milliseconds on one clock. */
export interface Loaded {
  readonly startedMs: number;
  /** How long the recorded page took until its load event; 0 where nothing is recorded. */
  readonly recordedMs: number;
  /** When the plan's time for it is over. */
  readonly untilMs: number;
}

/**
 * The wait for what counts: for requests that are on their way as long as the load may take, and for those that are missing. The page may
 * make these by a timer, or when another one has come: in the recording it had made them by the load event, so that no timer was longer
 * than all of that load. Over a slow arm the timer may start when the last request has ended, so the time
 * is counted from there again.
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
    return !missing || nowMs >= Math.min(untilMs, this.#sinceMs + Math.max(LEAST_MS, recordedMs));
  }
}
