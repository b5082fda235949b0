import { LabError, ExitCode } from '../io/errors.js';
import { nearestRank } from '../statistics/figures.js';
import { flowsOf, isLost, type Flow, type Packet } from '../trace/packets.js';

/** One second of a transfer. */
export interface TransferSecond {
  /** Throughput of IP packets that the link delivered to the client, in Mbit/s. */
  readonly throughputMbit: number;
  /** Mean time that packets arriving in this second waited in the queue, in milliseconds. */
  readonly queueDelayMs: number;
  readonly lostPackets: number;
}

/** How a congestion controller used the link during one bulk transfer. */
export interface TransferShape {
  /** Time from the first to the last packet of the transfer at the link. */
  readonly seconds: number;
  /** Throughput over all whole seconds from the second one on. */
  readonly throughputMbit: number;
  /** Queue delay over all packets of these seconds. */
  readonly queueDelayMs: {
    readonly p5: number;
    readonly p50: number;
    readonly p95: number;
    readonly mean: number;
  };
  /**
   * Percentage of downstream packets that the link dropped. Its queue was full, since it has no
   * other losses.
   */
  readonly lostPercent: number;
  /** Throughput of the first second, which includes slow start. */
  readonly firstSecondMbit: number;
  /**
   * Payload sent before its first acknowledgement; undefined if the start of the flow is not
   * visible.
   */
  readonly initialWindow: { readonly packets: number; readonly bytes: number } | undefined;
  /**
   * The whole seconds from the second one on: the first one shows the start of a transfer, not its
   * steady state.
   */
  readonly windows: readonly TransferSecond[];
}

const SECOND_MS = 1000;

/**
 * Computes the shape of a download from the link's packets. `rateMbit` is the link's downstream
 * rate.
 */
export function shapeOf(
  packets: readonly Packet[],
  protocol: 'tcp' | 'udp',
  rateMbit: number,
): TransferShape {
  const flow = bulkFlow(packets, protocol);
  const down = flow?.packets.filter(({ way }) => way === 'down') ?? [];
  const [first, last] = [down.find(({ payload }) => payload > 0), down.at(-1)];
  if (flow === undefined || first === undefined || last === undefined) {
    throw new LabError(
      ExitCode.Unavailable,
      `the link saw no download over ${protocol.toUpperCase()}`,
    );
  }
  const start = first.arrived;
  const count = Math.floor((last.arrived - start) / SECOND_MS);
  const seconds = Array.from({ length: count }, (_, at) =>
    secondOf(down, start + at * SECOND_MS, rateMbit),
  );
  const windows = seconds.slice(1);
  const steady = down.filter(
    ({ arrived }) => arrived >= start + SECOND_MS && arrived < start + count * SECOND_MS,
  );
  const delays = steady.map((packet) => delayOf(packet, rateMbit)).sort((a, b) => a - b);
  return {
    seconds: (last.arrived - start) / SECOND_MS,
    throughputMbit: mean(windows.map(({ throughputMbit }) => throughputMbit)),
    queueDelayMs: {
      p5: percentile(delays, 5),
      p50: percentile(delays, 50),
      p95: percentile(delays, 95),
      mean: mean(delays),
    },
    lostPercent: (100 * down.filter(isLost).length) / down.length,
    firstSecondMbit: seconds[0]?.throughputMbit ?? 0,
    initialWindow: initialWindow(flow),
    windows,
  };
}

/** Returns the flow with the most downstream bytes. */
function bulkFlow(packets: readonly Packet[], protocol: 'tcp' | 'udp'): Flow | undefined {
  const bytes = (flow: Flow): number =>
    flow.packets.reduce((sum, { way, payload }) => sum + (way === 'down' ? payload : 0), 0);
  const flows = flowsOf(packets).filter((flow) => flow.protocol === protocol);
  return flows.sort((a, b) => bytes(b) - bytes(a))[0];
}

function secondOf(down: readonly Packet[], from: number, rateMbit: number): TransferSecond {
  const within = (at: number | undefined): boolean =>
    at !== undefined && at >= from && at < from + SECOND_MS;
  const arrived = down.filter((packet) => within(packet.arrived));
  const bytes = down.reduce((sum, packet) => sum + (within(packet.left) ? packet.bytes : 0), 0);
  return {
    throughputMbit: (bytes * 8) / 1e6,
    queueDelayMs: mean(arrived.map((packet) => delayOf(packet, rateMbit))),
    lostPackets: arrived.filter(isLost).length,
  };
}

/** Returns how long the bytes queued before a packet delayed it. */
function delayOf({ queueBytes }: Packet, rateMbit: number): number {
  return (queueBytes * 8) / (rateMbit * 1000);
}

/**
 * Returns the initial window as seen at the link: the downstream payload after the client's
 * request, until the server receives the first packet of the client that can acknowledge any of it.
 *
 * The request is in the client's first flight after a packet from the server. Other data that the
 * server sends, such as session tickets, is part of the window and of this figure.
 */
function initialWindow({ packets }: Flow): TransferShape['initialWindow'] {
  const carrying = packets.filter(({ payload, left }) => payload > 0 && left !== undefined);
  const heard = carrying.find(({ way }) => way === 'down')?.left;
  const asked = carrying.find(
    ({ way, arrived }) => way === 'up' && heard !== undefined && arrived >= heard,
  )?.left;
  const from = packets.find(({ way, payload, arrived }) => {
    return way === 'down' && payload > 0 && asked !== undefined && arrived >= asked;
  });
  if (from?.left === undefined) return undefined;
  const told = from.left;
  const until = packets.find(
    ({ way, arrived, left }) => way === 'up' && arrived >= told && left !== undefined,
  )?.left;
  if (until === undefined) return undefined;
  const sent = packets.filter(({ way, payload, arrived }) => {
    return way === 'down' && payload > 0 && arrived >= from.arrived && arrived < until;
  });
  return { packets: sent.length, bytes: sent.reduce((sum, { payload }) => sum + payload, 0) };
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

function percentile(sorted: readonly number[], percent: number): number {
  return sorted[nearestRank(percent, sorted.length) - 1] ?? 0;
}
