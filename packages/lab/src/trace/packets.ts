import { integer, optionalInteger, readCsv, type Row } from './csv.js';

const COLUMNS = [
  ...([
    'arrived_ns',
    'left_ns',
    'way',
    'protocol',
    'near_port',
    'far_port',
    'bytes',
    'payload',
  ] as const),
  ...(['fate', 'queue_bytes', 'kind', 'sequence', 'acknowledgement'] as const),
] as const;

/** From the client to the server (`up`) or back (`down`). */
export type Way = 'up' | 'down';

/** One packet on the link, as written by `pronghorn link --packets`. */
export interface Packet {
  /** When it reached the link, in milliseconds since navigation start. */
  readonly arrived: number;
  /** When it was delivered to the other end; undefined if it never was. */
  readonly left?: number;
  readonly way: Way;
  /** `tcp`, `udp`, `icmp`, … */
  readonly protocol: string;
  readonly nearPort?: number;
  readonly farPort?: number;
  /** Size of the IP packet. */
  readonly bytes: number;
  /** Size after the TCP or UDP header. */
  readonly payload: number;
  /** `delivered`, `held` (in transit at the end), or what lost it. */
  readonly fate: string;
  /** Bytes queued for the link's rate when it arrived, without the packet itself. */
  readonly queueBytes: number;
  /**
   * TCP's flags as letters, or the type of the first QUIC packet in a datagram; otherwise empty.
   */
  readonly kind: string;
  /** TCP's raw 32-bit numbers. */
  readonly sequence?: number;
  readonly acknowledgement?: number;
}

/**
 * Reads a packet file. Times become milliseconds since `zeroMs`, which is in milliseconds of the
 * same clock.
 */
export async function readPackets(path: string, zeroMs: number): Promise<Packet[]> {
  return readCsv(path, COLUMNS, (row) => packetOf(row, zeroMs));
}

function packetOf(row: Row<(typeof COLUMNS)[number]>, zeroMs: number): Packet | undefined {
  const arrived = integer(row.arrived_ns);
  const left = optionalInteger(row.left_ns);
  const ports = [optionalInteger(row.near_port), optionalInteger(row.far_port)] as const;
  const numbers = [optionalInteger(row.sequence), optionalInteger(row.acknowledgement)] as const;
  const sizes = [
    integer(row.bytes),
    optionalInteger(row.payload),
    integer(row.queue_bytes),
  ] as const;
  const [bytes, payload, queueBytes] = sizes;
  if (arrived === undefined || left === undefined || (row.way !== 'up' && row.way !== 'down'))
    return undefined;
  if (bytes === undefined || payload === undefined || queueBytes === undefined || row.fate === '')
    return undefined;
  const [nearPort, farPort] = ports;
  const [sequence, acknowledgement] = numbers;
  if ([nearPort, farPort, sequence, acknowledgement].includes(undefined)) return undefined;
  return {
    arrived: arrived / 1e6 - zeroMs,
    ...(left !== null && { left: left / 1e6 - zeroMs }),
    way: row.way,
    protocol: row.protocol,
    ...present('nearPort', nearPort),
    ...present('farPort', farPort),
    bytes,
    // The payload of other protocols is unknown.
    payload: payload ?? 0,
    fate: row.fate,
    queueBytes,
    kind: row.kind,
    ...present('sequence', sequence),
    ...present('acknowledgement', acknowledgement),
  };
}

function present<K extends string>(
  key: K,
  value: number | null | undefined,
): Partial<Record<K, number>> {
  return typeof value === 'number' ? ({ [key]: value } as Record<K, number>) : {};
}

/**
 * Returns whether the link lost or dropped a packet. A packet in transit at the end is not lost.
 */
export function isLost({ fate }: Packet): boolean {
  return fate !== 'delivered' && fate !== 'held';
}

/** One connection's packets in the order in which they reached the link. */
export interface Flow {
  /** `tcp 35346`: the protocol and the client's port. */
  readonly name: string;
  readonly protocol: 'tcp' | 'udp';
  readonly nearPort: number;
  readonly farPort: number;
  readonly packets: readonly Packet[];
}

/** Port of DNS servers, which are not under test. */
const DNS_PORT = 53;

/** Groups packets into the flows between two ports, without other protocols and DNS. */
export function flowsOf(packets: readonly Packet[]): Flow[] {
  const flows = new Map<string, Flow & { readonly packets: Packet[] }>();
  for (const packet of packets) {
    const { protocol, nearPort, farPort } = packet;
    if (
      (protocol !== 'tcp' && protocol !== 'udp') ||
      nearPort === undefined ||
      farPort === undefined
    )
      continue;
    if (farPort === DNS_PORT) continue;
    const key = `${protocol} ${nearPort} ${farPort}`;
    const flow = flows.get(key) ?? {
      name: `${protocol} ${nearPort}`,
      protocol,
      nearPort,
      farPort,
      packets: [],
    };
    flow.packets.push(packet);
    flows.set(key, flow);
  }
  return [...flows.values()];
}

/**
 * Returns the link's round trip without queueing: the sum of the shortest observed transit times up
 * and down, in milliseconds. Undefined if nothing was delivered in one direction.
 */
export function baseRoundTrip(packets: readonly Packet[]): number | undefined {
  const shortest = { up: Infinity, down: Infinity };
  for (const { way, arrived, left } of packets) {
    if (left !== undefined) shortest[way] = Math.min(shortest[way], left - arrived);
  }
  const sum = shortest.up + shortest.down;
  return Number.isFinite(sum) ? sum : undefined;
}
