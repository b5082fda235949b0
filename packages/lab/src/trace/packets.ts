import { integer, optionalInteger, readCsv, type Row } from './csv.js';

const COLUMNS = [
  ...(['arrived_ns', 'left_ns', 'way', 'protocol', 'near_port', 'far_port', 'bytes', 'payload'] as const),
  ...(['fate', 'queue_bytes', 'kind', 'sequence', 'acknowledgement'] as const),
] as const;

/** From the client to the server, or back. */
export type Way = 'up' | 'down';

/** One packet on the link, as `pronghorn link --packets` wrote it. */
export interface Packet {
  /** When it reached the link, in milliseconds since navigation start. */
  readonly arrived: number;
  /** When it was handed to the other end; undefined for a packet that never was. */
  readonly left?: number;
  readonly way: Way;
  /** `tcp`, `udp`, `icmp`, … */
  readonly protocol: string;
  readonly nearPort?: number;
  readonly farPort?: number;
  /** Of the IP packet. */
  readonly bytes: number;
  /** After the TCP or UDP header. */
  readonly payload: number;
  /** `delivered`, `held` (still on its way at the end), or what it was lost by. */
  readonly fate: string;
  /** What waited for the link's rate when it arrived, itself not counted. */
  readonly queueBytes: number;
  /** TCP's flags as letters, or the kind of the first QUIC packet in a datagram; empty where there is neither. */
  readonly kind: string;
  /** TCP's raw 32-bit numbers. */
  readonly sequence?: number;
  readonly acknowledgement?: number;
}

/** Reads a packet file. Times become milliseconds since `zeroMs`, itself in milliseconds of the same clock. */
export async function readPackets(path: string, zeroMs: number): Promise<Packet[]> {
  return readCsv(path, COLUMNS, (row) => packetOf(row, zeroMs));
}

function packetOf(row: Row<(typeof COLUMNS)[number]>, zeroMs: number): Packet | undefined {
  const arrived = integer(row.arrived_ns);
  const left = optionalInteger(row.left_ns);
  const ports = [optionalInteger(row.near_port), optionalInteger(row.far_port)] as const;
  const numbers = [optionalInteger(row.sequence), optionalInteger(row.acknowledgement)] as const;
  const sizes = [integer(row.bytes), optionalInteger(row.payload), integer(row.queue_bytes)] as const;
  const [bytes, payload, queueBytes] = sizes;
  if (arrived === undefined || left === undefined || (row.way !== 'up' && row.way !== 'down')) return undefined;
  if (bytes === undefined || payload === undefined || queueBytes === undefined || row.fate === '') return undefined;
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
    // Other protocols have none that is known.
    payload: payload ?? 0,
    fate: row.fate,
    queueBytes,
    kind: row.kind,
    ...present('sequence', sequence),
    ...present('acknowledgement', acknowledgement),
  };
}

function present<K extends string>(key: K, value: number | null | undefined): Partial<Record<K, number>> {
  return typeof value === 'number' ? ({ [key]: value } as Record<K, number>) : {};
}

/** Whether the link lost or dropped a packet. One that was still on its way at the end is not lost. */
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

/** Ports of servers that are not under test. */
const DNS_PORT = 53;

/** Sorts packets into the flows between two ports; those of other protocols and of DNS are left out. */
export function flowsOf(packets: readonly Packet[]): Flow[] {
  const flows = new Map<string, Flow & { readonly packets: Packet[] }>();
  for (const packet of packets) {
    const { protocol, nearPort, farPort } = packet;
    if ((protocol !== 'tcp' && protocol !== 'udp') || nearPort === undefined || farPort === undefined) continue;
    if (farPort === DNS_PORT) continue;
    const key = `${protocol} ${nearPort} ${farPort}`;
    const flow = flows.get(key) ?? { name: `${protocol} ${nearPort}`, protocol, nearPort, farPort, packets: [] };
    flow.packets.push(packet);
    flows.set(key, flow);
  }
  return [...flows.values()];
}

/**
 * The round trip that the link gives a packet that waits for nobody: the shortest way up and the shortest way down
 * that were seen, in milliseconds. Undefined when nothing was delivered in one of them.
 */
export function baseRoundTrip(packets: readonly Packet[]): number | undefined {
  const shortest = { up: Infinity, down: Infinity };
  for (const { way, arrived, left } of packets) {
    if (left !== undefined) shortest[way] = Math.min(shortest[way], left - arrived);
  }
  const sum = shortest.up + shortest.down;
  return Number.isFinite(sum) ? sum : undefined;
}
