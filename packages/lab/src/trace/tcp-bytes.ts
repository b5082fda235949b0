import { Contiguous } from './contiguous.js';
import type { NetLogConnection, StreamPiece } from './netlog.js';
import type { Http2Delivered } from './netlog-http2.js';
import { isLost, type Flow, type Packet, type Way } from './packets.js';

/** A TCP packet with payload, and the position of that payload in its direction's bytes. */
export interface Segment {
  readonly packet: Packet;
  /** Bytes from the start of the connection, without the SYN. */
  readonly from: number;
  readonly to: number;
  /** Whether any of it had been sent before. */
  readonly isRetransmission: boolean;
}

/** Returns the segments of one direction in the order in which they reached the link. */
export function segmentsOf(flow: Flow, way: Way): Segment[] {
  const segments: Segment[] = [];
  let start: number | undefined;
  let highest = 0;
  for (const packet of flow.packets) {
    const { sequence, payload, kind } = packet;
    if (packet.way !== way || sequence === undefined) continue;
    if (kind.includes('S')) start ??= (sequence + 1) >>> 0;
    if (payload === 0) continue;
    start ??= sequence;
    const from = unwrap(sequence, start, highest);
    const to = from + payload;
    segments.push({ packet, from, to, isRetransmission: from < highest });
    highest = Math.max(highest, to);
  }
  return segments;
}

/**
 * Returns the position of a 32-bit sequence number: of all candidates the one nearest to `near`.
 */
function unwrap(sequence: number, start: number, near: number): number {
  return near + ((sequence - start - near) | 0);
}

/** A period in which received bytes could not be delivered because earlier bytes were missing. */
export interface Stall {
  /** When the first blocked byte arrived. */
  readonly from: number;
  /** When the missing bytes arrived. */
  readonly to: number;
  /** The missing range. */
  readonly missing: { readonly from: number; readonly to: number };
  readonly heldBytes: number;
  /**
   * The lost packet that had carried the missing bytes; undefined if there was none, as with
   * reordered packets.
   */
  readonly lost?: Packet;
}

/** Returns the stalls at the receiving end of a direction, in order. */
export function stallsOf(segments: readonly Segment[]): Stall[] {
  const arrivals = segments
    .flatMap(({ packet, from, to }) =>
      packet.left === undefined ? [] : [{ at: packet.left, from, to }],
    )
    .sort((a, b) => a.at - b.at);
  const losses = segments.filter(({ packet }) => isLost(packet));
  const stalls: Stall[] = [];
  const bytes = new Contiguous();
  let since: number | undefined;
  for (const { at, from, to } of arrivals) {
    const before = { end: bytes.end, gapEnd: bytes.gapEnd, heldBytes: bytes.heldBytes };
    bytes.add(from, to);
    if (bytes.end > before.end) {
      if (since !== undefined && before.gapEnd !== undefined) {
        const missing = { from: before.end, to: before.gapEnd };
        const lost = lostCarrier(losses, missing.from, at);
        stalls.push({
          from: since,
          to: at,
          missing,
          heldBytes: before.heldBytes,
          ...(lost !== undefined && { lost }),
        });
      }
      since = bytes.hasGap ? at : undefined;
    } else if (bytes.hasGap) since ??= at;
  }
  return stalls;
}

/** Returns the last lost packet that had carried the byte before a stall ended. */
function lostCarrier(losses: readonly Segment[], byte: number, until: number): Packet | undefined {
  return losses.findLast(
    ({ packet, from, to }) => from <= byte && byte < to && packet.arrived < until,
  )?.packet;
}

/**
 * Returns when the body bytes of an HTTP/2 connection's streams arrived at the client, in order or
 * not. The NetLog has the position of each piece in TCP's bytes, and the link has the first arrival
 * of those bytes. The positions are exact to a TLS record's overhead (22 bytes).
 */
export function tcpArrivals(
  connection: NetLogConnection,
  segments: readonly Segment[],
): ReadonlyMap<number, readonly StreamPiece[]> {
  const firstArrivals = segments
    .flatMap(({ packet, from, to }) =>
      packet.left === undefined ? [] : [{ at: packet.left, from, to }],
    )
    .sort((a, b) => a.from - b.from || a.at - b.at);
  const place = placeInTcp(connection);
  return new Map(
    connection.streams.map((stream) => {
      const pieces: StreamPiece[] = [];
      for (const { bytes, length, textEnd } of stream.delivered as readonly Http2Delivered[]) {
        const to = place(textEnd);
        const from = place(textEnd - length);
        let done = from;
        for (const segment of overlapping(firstArrivals, from, to)) {
          if (segment.to <= done) continue;
          const [a, b] = [Math.max(done, segment.from), Math.min(to, segment.to)];
          const textAt = (tcp: number): number =>
            Math.round(bytes - length + ((tcp - from) * length) / (to - from));
          pieces.push({ at: segment.at, offset: textAt(a), length: textAt(b) - textAt(a) });
          done = b;
        }
      }
      return [stream.id, pieces.sort((a, b) => a.at - b.at)];
    }),
  );
}

interface Arrival {
  readonly at: number;
  readonly from: number;
  readonly to: number;
}

function overlapping(sorted: readonly Arrival[], from: number, to: number): Arrival[] {
  // The longest segment is 64 KB, so nothing that starts further ahead reaches `from`.
  const first = lowerBound(
    sorted.length,
    (index) => (sorted[index] as Arrival).from >= from - 65_536,
  );
  const found: Arrival[] = [];
  for (let index = first; index < sorted.length; index += 1) {
    const segment = sorted[index] as Arrival;
    if (segment.from >= to) break;
    if (segment.to > from) found.push(segment);
  }
  return found;
}

/**
 * Maps a position in the decrypted bytes to one in TCP's bytes, by linear interpolation between
 * known positions.
 */
function placeInTcp({ reads = [] }: NetLogConnection): (text: number) => number {
  return (text) => {
    const next = lowerBound(reads.length, (index) => (reads[index]?.textBytes ?? Infinity) >= text);
    const [a, b] = [reads[next - 1], reads[next]];
    if (a === undefined || b === undefined) return a?.tcpBytes ?? b?.tcpBytes ?? text;
    const share = (text - a.textBytes) / (b.textBytes - a.textBytes);
    return a.tcpBytes + share * (b.tcpBytes - a.tcpBytes);
  };
}

/**
 * Returns the first index below `count` for which `holds`, which must hold for all after it;
 * otherwise `count`.
 */
function lowerBound(count: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
