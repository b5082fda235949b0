/** What is known of how long a response let wait. Times are milliseconds, those of day on one clock for the whole load. */
export interface Wait {
  /** Host and port. */
  readonly origin: string;
  /** A file as it lies there, or something that the server makes for each request. */
  readonly kind: Kind;
  /** The page's own document, or a redirect to it: the server works on it in another way than on what comes after. */
  readonly mainDocument?: boolean;
  /** Of whichever origins share one; undefined where nobody says. */
  readonly connection?: number;
  /** How long the connection took to open, TLS left out, for a request that had to open one. */
  readonly connectMs: number | undefined;
  /** When the request had been sent; undefined where nobody says. */
  readonly sentMs: number | undefined;
  /** From then to the first byte of the response. */
  readonly waitMs: number | undefined;
  /** When the last byte of its content had come, as far as it came. */
  readonly endMs: number | undefined;
  /** What came of its content, as it was on the wire; undefined where nobody says. */
  readonly bytes?: number | undefined;
}

export type Kind = 'file' | 'made';

/** How long a server took to produce a response. */
export interface ThinkTime {
  readonly seconds: number;
  /** `wait`: counted from the wait itself. `estimate`: other responses delayed this one, so that it follows from theirs. */
  readonly from: ThinkTimeSource;
}

export const THINK_TIME_SOURCES = ['wait', 'estimate'] as const;
export type ThinkTimeSource = (typeof THINK_TIME_SOURCES)[number];

/** A wait of which more than this may be the other responses' is not counted. */
const CERTAIN_MS = 5;

/** The most that a TLS record holds: none of it can be read before its last byte has come. */
const RECORD_BYTES = 16_384;

/** A replay takes no longer ones. */
const MOST_SECONDS = 600;

/**
 * How long the server took for each of the responses; undefined where that cannot be told.
 *
 * A wait is a round trip, the time of the server, and the time for which the response stood behind others in the queues of
 * the network and of the server's connection. That last part is the recording network's, and a replay has its own. While such
 * queues are not empty, bytes arrive: a response cannot have been ready a round trip before the stretch of bytes began that
 * ends with its own first byte. So the server's time lies between two bounds, one with and one without that stretch, over
 * whatever connections its bytes came: all of them may share the slowest link.
 *
 * Where the bounds are close, the lower one counts. Elsewhere the median of those that count, of the same origin and kind but the
 * page's own document, is the estimate where it lies between the bounds. Outside of them it says nothing of this response: then,
 * or without any, the lower bound is the estimate, unless it is 0.
 */
export function thinkTimes(waits: readonly Wait[]): (ThinkTime | undefined)[] {
  const roundTrips = roundTripsOf(waits);
  const bodies = bodiesOf(waits);
  const recordMs = recordMsOf(bodies);
  const bounds = waits.map((wait) => boundsOf(wait, bodies, roundTrips.get(wait.origin) ?? 0, recordMs));
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
    // The document is made in another way than others.
    const usual = wait.mainDocument === true ? undefined : lowerMedian(counted.get(likeness(wait)) ?? []);
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

/** When content was received, the last to end first. */
function bodiesOf(waits: readonly Wait[]): Body[] {
  const bodies = waits.flatMap((of): Body[] => {
    const { sentMs, waitMs, endMs } = of;
    if (sentMs === undefined || waitMs === undefined || waitMs < 0) return [];
    return [{ of, firstMs: sentMs + waitMs, endMs: Math.max(sentMs + waitMs, endMs ?? 0) }];
  });
  return bodies.sort((one, other) => other.endMs - one.endMs);
}

/** How long a full record is on its way over the narrowest link, in the middle of the responses that tell; 0 if none does. */
function recordMsOf(bodies: readonly Body[]): number {
  const times = bodies.flatMap(({ of: { bytes = 0 }, firstMs, endMs }) =>
    // Of the first record only its end is seen.
    bytes >= 1.5 * RECORD_BYTES ? [((endMs - firstMs) * RECORD_BYTES) / (bytes - RECORD_BYTES)] : [],
  );
  return lowerMedian(times) ?? 0;
}

function boundsOf(wait: Wait, bodies: readonly Body[], roundTripMs: number, recordMs: number): Bounds | undefined {
  const { sentMs, waitMs } = wait;
  if (waitMs === undefined || waitMs < 0) return undefined;
  const most = Math.max(0, waitMs - roundTripMs);
  if (sentMs === undefined) return { least: 0, most };
  const firstMs = sentMs + waitMs;
  let busyFromMs = firstMs;
  for (const body of bodies) {
    // What had ended when the request was sent stood before nothing.
    if (body.endMs <= sentMs) break;
    if (body.of === wait || body.firstMs >= firstMs) continue;
    // A congestion window lets pass one burst for each round trip, with pauses between them, and a record is on its way unseen.
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

/** To a tenth of a millisecond: what is less is the browser's own. */
function secondsOf(milliseconds: number): number {
  return Math.min(MOST_SECONDS, Math.round(milliseconds * 10) / 10_000);
}

/**
 * The round trip to each origin: what its connections took to open, in the middle of them, or the least wait for any of its
 * responses where that is less, since each wait has a round trip in it. An origin that has its requests on a connection of
 * another one has that one's.
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
    const least = [lowerMedian(connects.filter(isTime)), ...own.map(({ waitMs }) => waitMs)].filter(isTime);
    if (least.length > 0) roundTrips.set(origin, Math.min(...least));
  }
  return roundTrips;
}

/** A connection that was opened before it was wanted took no time, which says nothing of the way. */
function isTime(milliseconds: number | undefined): milliseconds is number {
  return milliseconds !== undefined && milliseconds > 0;
}

function lowerMedian(values: readonly number[]): number | undefined {
  return [...values].sort((one, other) => one - other)[Math.ceil(values.length / 2) - 1];
}

/** What kind of response a media type is of, as far as that can be told: pages and data are made, what pages are built of is stored. */
export function kindOf(mediaType: string | undefined): Kind {
  return /^(image|font|audio|video)\/|css|javascript|ecmascript|wasm|font/i.test(mediaType ?? '') ? 'file' : 'made';
}

/** How many think times of a recording were counted, estimated, and left out since nothing tells them. */
export interface ThinkTimeCounts {
  readonly counted: number;
  readonly estimated: number;
  readonly leftOut: number;
  /** Of recordings of before waits were told apart: they have what a response stood behind others as well. */
  readonly untold: number;
}

export function countThinkTimes(
  entries: readonly { readonly thinkSeconds?: number | undefined; readonly thinkFrom?: ThinkTimeSource | undefined }[],
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

export function thinkTimesInWords({ counted, estimated, leftOut, untold }: ThinkTimeCounts): string {
  const parts = [
    ...(untold > 0 ? [`${untold} of unknown origin`] : []),
    `${counted} counted`,
    `${estimated} estimated`,
    `${leftOut} left out`,
  ];
  return parts.join(', ');
}

/** What is wrong with the think times of a recording, if too few of them were counted to be what its server took. */
export function thinkTimesWarning(counts: ThinkTimeCounts): string | undefined {
  const { counted, estimated, leftOut, untold } = counts;
  if (untold > 0) {
    return (
      `of ${untold} think times it is not known whether other responses are in them, which hides differences between transports; ` +
      'capture the page again, or set `think_times = false`'
    );
  }
  const all = counted + estimated + leftOut;
  // Where there are none, none are imitated.
  if (counted + estimated === 0 || 2 * counted >= all) return undefined;
  return (
    `only ${counted} of ${all} think times were counted, the others were estimated (${estimated}) or left out (${leftOut}), since other ` +
    'responses came in the meantime; capture the page over a faster link, or set `think_times = false`'
  );
}
