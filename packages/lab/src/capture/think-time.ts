/** What is known of how long a response let wait, in milliseconds. */
export interface Wait {
  /** Host and port. */
  readonly origin: string;
  /** From the end of the request to the first byte of the response. */
  readonly waitMs: number | undefined;
  /** How long the connection took to be there, TLS left out, for a request that had to open one. */
  readonly connectMs: number | undefined;
}

/**
 * How long a server thought about each of the requests, in seconds; undefined where nothing is known of the wait.
 *
 * A wait is a round trip and the time that the server took. The round trip to an origin is taken to be the least that any
 * of its connections took to open or any of its responses took to begin. What a response waited for others on the same
 * connection, or for lost packets, is in its time as well.
 */
export function thinkTimes(waits: readonly Wait[]): (number | undefined)[] {
  const roundTrips = new Map<string, number>();
  for (const { origin, waitMs, connectMs } of waits) {
    // A connection that was opened before it was wanted took no time, which says nothing of the way.
    const known = [waitMs, connectMs].filter((ms) => ms !== undefined && ms > 0) as number[];
    roundTrips.set(origin, Math.min(roundTrips.get(origin) ?? Infinity, ...known));
  }
  return waits.map(({ origin, waitMs }) => {
    if (waitMs === undefined || waitMs < 0) return undefined;
    const thinkMs = Math.max(0, waitMs - (roundTrips.get(origin) ?? 0));
    // To a tenth of a millisecond: what is less is the browser's own.
    return Math.min(MOST_SECONDS, Math.round(thinkMs * 10) / 10_000);
  });
}

/** A replay takes no longer ones. */
const MOST_SECONDS = 600;
