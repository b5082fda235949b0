import { join } from 'node:path';
import type { Packet } from '../src/trace/packets.js';
import { flowsOf } from '../src/trace/packets.js';
import { readTimeline, timelineOf, type LoadTimeline } from '../src/trace/timeline.js';
import { recorded } from './recorded.js';
import { packageFolder } from './places.js';

/** Returns the folder of a real load: see `fixtures/traces/README.md`. */
export function traceFolder(name: string): string {
  return join(packageFolder, 'test/fixtures/traces', name);
}

export async function recordedTimeline(name: string): Promise<LoadTimeline> {
  const timeline = await readTimeline(traceFolder(name));
  if (timeline === undefined) throw new Error(`${name} has no timeline`);
  return timeline;
}

/** Returns a packet of one TCP connection, delivered after 20 ms by default. */
export function packet(arrived: number, way: Packet['way'], more: Partial<Packet> = {}): Packet {
  const lost = more.fate !== undefined && more.fate !== 'delivered';
  return {
    arrived,
    ...(!lost && { left: arrived + 20 }),
    way,
    protocol: 'tcp',
    nearPort: 40000,
    farPort: 443,
    bytes: 60 + (more.payload ?? 0),
    payload: 0,
    fate: 'delivered',
    queueBytes: 0,
    kind: 'A',
    ...more,
  };
}

/**
 * Returns a timeline of packets alone, with one request from 0 until `end` on the connection of
 * {@link packet}.
 */
export function packetTimeline(packets: readonly Packet[], end = 1_000): LoadTimeline {
  const { browser } = recorded('h2');
  const flows = flowsOf(packets);
  const bare = { browser, zero: 0, packets, flows, tcpInfo: [], server: new Map() };
  const request = {
    url: 'https://bench.test/',
    start: 0,
    sent: 0,
    end,
    failed: false,
    protocol: 'h2',
  };
  const requests = flows.map(({ name }) => ({ ...request, connection: name }));
  return { ...timelineOf(bare), end, requests };
}

export function without<T extends object, K extends keyof T>(whole: T, key: K): Omit<T, K> {
  const copy = { ...whole };
  Reflect.deleteProperty(copy, key);
  return copy;
}
