import { Contiguous } from './contiguous.js';
import type { NetLogConnection, StreamPiece } from './netlog.js';
import type { Http2Delivered } from './netlog-http2.js';
import { isLost, type Flow, type Packet, type Way } from './packets.js';

/** A TCP packet with content, and the place of that content in the connection's bytes of its direction. */
export interface Segment {
  readonly packet: Packet;
  /** Bytes from the start of the connection, SYN not counted. */
  readonly from: number;
  readonly to: number;
  /** Whether any of it had been sent before. */
  readonly again: boolean;
}

/** The segments of one direction in the order in which they reached the link. */
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
    segments.push({ packet, from, to, again: from < highest });
    highest = Math.max(highest, to);
  }
  return segments;
}

/** The place of a 32-bit sequence number: of all that it may stand for, the one nearest to `near`. */
function unwrap(sequence: number, start: number, near: number): number {
  return near + ((sequence - start - near) | 0);
}

/** A time in which bytes that had arrived could not be handed on, since bytes before them were missing. */
export interface Stall {
  /** When the first byte that was held back arrived. */
  readonly from: number;
  /** When the missing bytes arrived. */
  readonly to: number;
  /** What was missing. */
  readonly missing: { readonly from: number; readonly to: number };
  readonly heldBytes: number;
  /**
   * The packet that had carried the missing bytes and was lost; undefined if none was, as when packets changed order.
   */
  readonly lost?: Packet;
}

/** The stalls at the receiving end of a direction, in their order. */
export function stallsOf(segments: readonly Segment[]): Stall[] {
  const arrivals = segments
    .flatMap(({ packet, from, to }) => (packet.left === undefined ? [] : [{ at: packet.left, from, to }]))
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
        stalls.push({ from: since, to: at, missing, heldBytes: before.heldBytes, ...(lost !== undefined && { lost }) });
      }
      since = bytes.hasGap ? at : undefined;
    } else if (bytes.hasGap) since ??= at;
  }
  return stalls;
}

/** The last lost packet that had carried the byte before a stall ended. */
function lostCarrier(losses: readonly Segment[], byte: number, until: number): Packet | undefined {
  return losses.findLast(({ packet, from, to }) => from <= byte && byte < to && packet.arrived < until)?.packet;
}

/**
 * When the content of an HTTP/2 connection's streams arrived at the client, in order or not: the NetLog says where in
 * TCP's bytes each piece of content stands, and the link says when those bytes came for the first time. The places
 * are exact to a TLS record's overhead (22 bytes).
 */
export function tcpArrivals(
  connection: NetLogConnection,
  segments: readonly Segment[],
): ReadonlyMap<number, readonly StreamPiece[]> {
  const firstArrivals = segments
    .flatMap(({ packet, from, to }) => (packet.left === undefined ? [] : [{ at: packet.left, from, to }]))
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
          const textAt = (tcp: number): number => Math.round(bytes - length + ((tcp - from) * length) / (to - from));
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
  // The longest segment is 64 KB, so that nothing that starts further ahead reaches `from`.
  const first = lowerBound(sorted.length, (index) => (sorted[index] as Arrival).from >= from - 65_536);
  const found: Arrival[] = [];
  for (let index = first; index < sorted.length; index += 1) {
    const segment = sorted[index] as Arrival;
    if (segment.from >= to) break;
    if (segment.to > from) found.push(segment);
  }
  return found;
}

/** From a place in TLS's text to the place in TCP's bytes, in a straight line between the places that are known. */
function placeInTcp({ reads = [] }: NetLogConnection): (text: number) => number {
  return (text) => {
    const next = lowerBound(reads.length, (index) => (reads[index]?.textBytes ?? Infinity) >= text);
    const [a, b] = [reads[next - 1], reads[next]];
    if (a === undefined || b === undefined) return a?.tcpBytes ?? b?.tcpBytes ?? text;
    const share = (text - a.textBytes) / (b.textBytes - a.textBytes);
    return a.tcpBytes + share * (b.tcpBytes - a.tcpBytes);
  };
}

/** The first index below `count` for which `holds`, which must hold for all after it; or `count`. */
function lowerBound(count: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
