/**
 * The known timing of a response. Times are in milliseconds; absolute times share one clock for the
 * whole load.
 */
export interface Wait {
  /** Host and port. */
  readonly origin: string;
  /** Whether the response is a stored file or made by the server per request. */
  readonly kind: Kind;
  /**
   * Whether this is the page's document or a redirect to it, which the server produces differently
   * from the rest.
   */
  readonly mainDocument?: boolean;
  /** Identifies a connection across origins that share it; undefined if unknown. */
  readonly connection?: number;
  /** How long the connection took to open without TLS, for a request that opened one. */
  readonly connectMs: number | undefined;
  /** When the request had been sent; undefined if unknown. */
  readonly sentMs: number | undefined;
  /** Time from then to the first byte of the response. */
  readonly waitMs: number | undefined;
  /** When the last received byte of the body arrived. */
  readonly endMs: number | undefined;
  /** Received bytes of the body as on the wire; undefined if unknown. */
  readonly bytes?: number | undefined;
}

export type Kind = 'file' | 'made';

/** How long a server took to produce a response. */
export interface ThinkTime {
  readonly seconds: number;
  /**
   * `wait`: counted from the response's own wait. `estimate`: derived from other responses, which
   * delayed this one.
   */
  readonly from: ThinkTimeSource;
}

export const THINK_TIME_SOURCES = ['wait', 'estimate'] as const;
export type ThinkTimeSource = (typeof THINK_TIME_SOURCES)[number];

/** A wait is not counted if more than this part of it may be due to other responses. */
const CERTAIN_MS = 5;

/** Maximum size of a TLS record: nothing of it can be read before its last byte arrives. */
const RECORD_BYTES = 16_384;

/** A replay accepts no longer think times. */
const MAX_SECONDS = 600;

/**
 * Returns how long the server took for each response; undefined if unknown.
 *
 * A wait consists of a round trip, the server's time, and the time for which the response was
 * queued behind others in the network and in the server's connection. The last part belongs to the
 * recording network, and a replay has its own. While such queues are not empty, bytes arrive: a
 * response cannot have been ready more than a round trip before the start of the busy period that
 * ends with its own first byte. So the server's time has two bounds, with and without that period,
 * over all connections on which bytes arrived: they may all share the slowest link.
 *
 * If the bounds are close, the lower one counts. Otherwise the estimate is the median of the
 * counted ones of the same origin and kind, without the page's document, provided that it lies
 * between the bounds. If it does not, or there is none, the lower bound is the estimate, unless it
 * is 0.
 */
export function thinkTimes(waits: readonly Wait[]): (ThinkTime | undefined)[] {
  const roundTrips = roundTripsOf(waits);
  const bodies = bodiesOf(waits);
  const recordMs = recordMsOf(bodies);
  const bounds = waits.map((wait) =>
    boundsOf(wait, bodies, roundTrips.get(wait.origin) ?? 0, recordMs),
  );
  const counted = new Map<string, number[]>();
  for (const [at, found] of bounds.entries()) {
    const wait = waits[at] as Wait;
    const key = likeness(wait);
    if (found !== undefined && isCertain(found) && wait.mainDocument !== true)
      counted.set(key, [...(counted.get(key) ?? []), found.least]);
  }
  return bounds.map((found, at) => {
    if (found === undefined) return undefined;
    if (isCertain(found)) return { seconds: secondsOf(found.least), from: 'wait' };
    const wait = waits[at] as Wait;
    // The document is produced differently from other responses.
    const usual =
      wait.mainDocument === true ? undefined : lowerMedian(counted.get(likeness(wait)) ?? []);
    if (usual !== undefined && found.least <= usual && usual <= found.most) {
      return { seconds: secondsOf(usual), from: 'estimate' };
    }
    return found.least === 0 ? undefined : { seconds: secondsOf(found.least), from: 'estimate' };
  });
}

interface Bounds {
  readonly least: number;
  readonly most: number;
}

interface Body {
  readonly of: Wait;
  readonly firstMs: number;
  readonly endMs: number;
}

/** Returns when each body was received, the last to end first. */
function bodiesOf(waits: readonly Wait[]): Body[] {
  const bodies = waits.flatMap((of): Body[] => {
    const { sentMs, waitMs, endMs } = of;
    if (sentMs === undefined || waitMs === undefined || waitMs < 0) return [];
    return [{ of, firstMs: sentMs + waitMs, endMs: Math.max(sentMs + waitMs, endMs ?? 0) }];
  });
  return bodies.sort((one, other) => other.endMs - one.endMs);
}

/**
 * Returns how long a full record takes over the narrowest link: the median of the responses that
 * show it, 0 if none does.
 */
function recordMsOf(bodies: readonly Body[]): number {
  const times = bodies.flatMap(({ of: { bytes = 0 }, firstMs, endMs }) =>
    // Only the end of the first record is visible.
    bytes >= 1.5 * RECORD_BYTES
      ? [((endMs - firstMs) * RECORD_BYTES) / (bytes - RECORD_BYTES)]
      : [],
  );
  return lowerMedian(times) ?? 0;
}

function boundsOf(
  wait: Wait,
  bodies: readonly Body[],
  roundTripMs: number,
  recordMs: number,
): Bounds | undefined {
  const { sentMs, waitMs } = wait;
  if (waitMs === undefined || waitMs < 0) return undefined;
  const most = Math.max(0, waitMs - roundTripMs);
  if (sentMs === undefined) return { least: 0, most };
  const firstMs = sentMs + waitMs;
  let busyFromMs = firstMs;
  for (const body of bodies) {
    // Bodies that had ended when the request was sent did not delay it.
    if (body.endMs <= sentMs) break;
    if (body.of === wait || body.firstMs >= firstMs) continue;
    // A congestion window passes one burst per round trip with pauses in between, and a record in
    // transit is not visible.
    if (body.endMs + roundTripMs + recordMs < busyFromMs) break;
    busyFromMs = Math.min(busyFromMs, body.firstMs);
  }
  return { least: Math.max(0, Math.min(most, busyFromMs - sentMs - roundTripMs)), most };
}

function isCertain({ least, most }: Bounds): boolean {
  return most - least <= CERTAIN_MS;
}

function likeness({ origin, kind }: Wait): string {
  return `${kind} ${origin}`;
}

/** Rounds to a tenth of a millisecond; less is the browser's own time. */
function secondsOf(milliseconds: number): number {
  return Math.min(MAX_SECONDS, Math.round(milliseconds * 10) / 10_000);
}

/**
 * Returns the round trip to each origin: the median of the times that its connections took to open,
 * or the shortest wait for any of its responses if that is less, since each wait contains a round
 * trip. An origin that uses another origin's connection has that origin's round trip.
 */
function roundTripsOf(waits: readonly Wait[]): ReadonlyMap<string, number> {
  const opened = new Map<number, number>();
  for (const { connection, connectMs } of waits) {
    if (connection !== undefined && isTime(connectMs)) opened.set(connection, connectMs);
  }
  const origins = new Map<string, Wait[]>();
  for (const wait of waits) origins.set(wait.origin, [...(origins.get(wait.origin) ?? []), wait]);
  const roundTrips = new Map<string, number>();
  for (const [origin, own] of origins) {
    const connections = [...new Set(own.flatMap(({ connection }) => connection ?? []))];
    const connects = [
      ...connections.map((connection) => opened.get(connection)),
      ...own.filter(({ connection }) => connection === undefined).map(({ connectMs }) => connectMs),
    ];
    const least = [lowerMedian(connects.filter(isTime)), ...own.map(({ waitMs }) => waitMs)].filter(
      isTime,
    );
    if (least.length > 0) roundTrips.set(origin, Math.min(...least));
  }
  return roundTrips;
}

/** A connection that was opened in advance took no time, which says nothing about the path. */
function isTime(milliseconds: number | undefined): milliseconds is number {
  return milliseconds !== undefined && milliseconds > 0;
}

function lowerMedian(values: readonly number[]): number | undefined {
  return [...values].sort((one, other) => one - other)[Math.ceil(values.length / 2) - 1];
}

/**
 * Returns the kind of response from its media type, as far as it tells: pages and data are dynamic,
 * subresources are static.
 */
export function kindOf(mediaType: string | undefined): Kind {
  return /^(image|font|audio|video)\/|css|javascript|ecmascript|wasm|font/i.test(mediaType ?? '')
    ? 'file'
    : 'made';
}

/** Number of think times of a recording that were counted, estimated, or left out as unknown. */
export interface ThinkTimeCounts {
  readonly counted: number;
  readonly estimated: number;
  readonly leftOut: number;
  /**
   * From recordings older than the distinction: these also contain the time behind other responses.
   */
  readonly untold: number;
}

export function countThinkTimes(
  entries: readonly {
    readonly thinkSeconds?: number | undefined;
    readonly thinkFrom?: ThinkTimeSource | undefined;
  }[],
): ThinkTimeCounts {
  const known = entries.filter(({ thinkSeconds }) => thinkSeconds !== undefined);
  const from = (source: ThinkTimeSource | undefined): number =>
    known.filter(({ thinkFrom }) => thinkFrom === source).length;
  return {
    counted: from('wait'),
    estimated: from('estimate'),
    leftOut: entries.length - known.length,
    untold: from(undefined),
  };
}

export function describeThinkTimes({
  counted,
  estimated,
  leftOut,
  untold,
}: ThinkTimeCounts): string {
  const parts = [
    ...(untold > 0 ? [`${untold} of unknown origin`] : []),
    `${counted} counted`,
    `${estimated} estimated`,
    `${leftOut} left out`,
  ];
  return parts.join(', ');
}

/** Returns a warning if too few think times of a recording were counted to represent its server. */
export function thinkTimesWarning(counts: ThinkTimeCounts): string | undefined {
  const { counted, estimated, leftOut, untold } = counts;
  if (untold > 0) {
    return (
      `${untold} think times may include time behind other responses, which hides differences between transports; ` +
      'capture the page again, or set `think_times = false`'
    );
  }
  const all = counted + estimated + leftOut;
  // Without think times, none are imitated.
  if (counted + estimated === 0 || 2 * counted >= all) return undefined;
  return (
    `only ${counted} of ${all} think times were counted; the others were estimated (${estimated}) or left out (${leftOut}) because ` +
    'other responses arrived in the meantime; capture the page over a faster link, or set `think_times = false`'
  );
}
