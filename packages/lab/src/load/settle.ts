/** How long a load is waited for after its load event. */

/** The developer tools' last messages follow the load event by a few milliseconds. */
const LEAST_MS = 1_000;

/** Of a load with a load event, in milliseconds on one clock. */
export interface Loaded {
  readonly startedMs: number;
  /** When its load event had ended. */
  readonly nowMs: number;
  /** How long the recorded page took until its load event; 0 where nothing is recorded. */
  readonly recordedMs: number;
  /** When the plan's time for it is over. */
  readonly untilMs: number;
}

/**
 * Until when a request that is missing may still begin. The page may make it by a timer: in the recording it had made it by the load
 * event, so that no timer was longer than all of that load. Over a slow arm the timer may begin only now, with what has come last.
 */
export function missingUntilMs({ startedMs, nowMs, recordedMs, untilMs }: Loaded): number {
  return Math.min(untilMs, Math.max(nowMs, startedMs + recordedMs) + Math.max(LEAST_MS, recordedMs));
}
