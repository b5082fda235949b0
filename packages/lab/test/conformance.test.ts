import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { parse } from 'node-html-parser';
import {
  compareControllers,
  conformanceSchema,
  type Conformance,
  type Transfer,
} from '../src/conformance/conformance.js';
import { energyDistance } from '../src/conformance/distance.js';
import { conformanceLink } from '../src/conformance/link.js';
import { controllersOf } from '../src/conformance/run-conformance.js';
import { conformanceSection } from '../src/conformance/conformance-section.js';
import { conformanceMarkdown } from '../src/conformance/conformance-text.js';
import { shapeOf } from '../src/conformance/transfer.js';
import type { Arm } from '../src/campaign/plan.js';
import { readPackets } from '../src/trace/packets.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-conformance-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

const HEADER =
  'arrived_ns,left_ns,way,protocol,near_port,far_port,bytes,payload,fate,queue_bytes,kind,sequence,acknowledgement';

interface MadePacket {
  /** In milliseconds. */
  readonly at: number;
  /** Transit time; absent for a dropped packet. */
  readonly takes?: number;
  readonly way: 'up' | 'down';
  readonly payload: number;
  readonly queue?: number;
}

/** Writes a packet file like the link's, from packets at given times. */
function packetFile(name: string, packets: readonly MadePacket[], protocol = 'tcp'): string {
  const ns = (ms: number): string => String(Math.round(ms * 1e6) + 58_920_748_000_000);
  const lines = packets.map(({ at, takes, way, payload, queue = 0 }) => {
    const left = takes === undefined ? '' : ns(at + takes);
    const fate = takes === undefined ? 'queue_full' : 'delivered';
    return `${ns(at)},${left},${way},${protocol},40000,443,${payload + 52},${payload},${fate},${queue},,,`;
  });
  const path = join(folder, name);
  writeFileSync(path, `${[HEADER, ...lines].join('\n')}\n`);
  return path;
}

/**
 * 25 ms each way: packets of a connection before the download, with their arrival times at the
 * link.
 */
const HANDSHAKE: readonly MadePacket[] = [
  { at: 0, takes: 25, way: 'up', payload: 0 },
  { at: 25, takes: 25, way: 'down', payload: 0 },
  { at: 50, takes: 25, way: 'up', payload: 300 },
  { at: 76, takes: 25, way: 'down', payload: 1200 },
  { at: 102, takes: 25, way: 'up', payload: 90 },
  { at: 102.5, takes: 25, way: 'up', payload: 100 },
];

/**
 * Returns a first flight of `packets`, the client's answer to its first packet, and what the server
 * may send then.
 */
function firstFlight(packets: number): MadePacket[] {
  const flight = Array.from({ length: packets }, (_, at): MadePacket => ({
    at: 128 + at,
    takes: 25,
    way: 'down',
    payload: 1448,
  }));
  return [
    ...flight,
    { at: 154, takes: 25, way: 'up', payload: 0 },
    { at: 179.5, takes: 25, way: 'down', payload: 1448 },
  ].sort((a, b) => a.at - b.at) as MadePacket[];
}

/**
 * Returns a bulk transfer of packets of 1500 bytes at 20 Mbit/s, each behind so much of a queue;
 * every hundredth is dropped.
 */
function bulk(seconds: number, queue: number): MadePacket[] {
  return Array.from({ length: Math.round((seconds * 1000) / 0.6) }, (_, at): MadePacket => {
    const packet = { at: 200 + at * 0.6, way: 'down', payload: 1448, queue } as const;
    return at % 100 === 99 ? packet : { ...packet, takes: 25 + (queue * 8) / 20_000 };
  });
}

test('throughput, queue delay and loss are computed from the packets', async () => {
  const path = packetFile('bulk.csv', [...HANDSHAKE, ...bulk(3.5, 62_500)]);
  const shape = shapeOf(await readPackets(path, 58_920_748), 'tcp', 20);
  // From the first packet with payload at 76 ms: three whole seconds, the first of which is the
  // start.
  assert.equal(shape.windows.length, 2);
  for (const { throughputMbit, queueDelayMs, lostPackets } of shape.windows) {
    assert.ok(Math.abs(throughputMbit - 0.99 * 20) < 0.05, String(throughputMbit));
    assert.equal(queueDelayMs, 25);
    assert.ok(lostPackets === 16 || lostPackets === 17, String(lostPackets));
  }
  assert.equal(shape.queueDelayMs.p50, 25);
  assert.equal(shape.queueDelayMs.p95, 25);
  assert.ok(Math.abs(shape.lostPercent - 1) < 0.02, String(shape.lostPercent));
  // 124 ms pass before the bulk begins, and 50 ms until its first packet arrives.
  assert.ok(
    Math.abs(shape.firstSecondMbit - 0.99 * 20 * 0.826) < 0.1,
    String(shape.firstSecondMbit),
  );
});

test('the initial window is the data sent before any of it can be acknowledged', async () => {
  for (const [protocol, packets] of [
    ['tcp', 10],
    ['udp', 32],
  ] as const) {
    const path = packetFile(
      `window-${packets}.csv`,
      [...HANDSHAKE, ...firstFlight(packets), ...bulk(2, 0)],
      protocol,
    );
    const { initialWindow } = shapeOf(await readPackets(path, 58_920_748), protocol, 20);
    assert.deepEqual(initialWindow, { packets, bytes: packets * 1448 });
  }
});

test('packets without a download over the protocol are reported', async () => {
  const path = packetFile('empty.csv', HANDSHAKE);
  const packets = await readPackets(path, 58_920_748);
  assert.throws(() => shapeOf(packets, 'udp', 20), /the link saw no download over UDP/);
});

test('energy distance is 0 for equal clouds, the gap for narrow ones, and less where clouds overlap', () => {
  const narrow = (throughput: number, delay: number): { throughput: number; delay: number }[] =>
    Array.from({ length: 8 }, () => ({ throughput, delay }));
  assert.equal(energyDistance(narrow(0.9, 0.5), narrow(0.9, 0.5)), 0);
  assert.ok(Math.abs((energyDistance(narrow(0.9, 0.1), narrow(0.6, 0.5)) ?? 0) - 0.5) < 1e-12);
  const wide = (shift: number): { throughput: number; delay: number }[] =>
    Array.from({ length: 8 }, (_, at) => ({ throughput: 1, delay: shift + at / 8 }));
  const apart = energyDistance(wide(0), wide(0.25)) ?? 0;
  assert.ok(apart > 0.02 && apart < 0.25, String(apart));
  // Computed by hand: E|X−Y| = 0.5, within X 0, within Y 0.5.
  const y = [0, 1].map((delay) => ({ throughput: 0, delay }));
  assert.equal(energyDistance([{ throughput: 0, delay: 0 }], y), 0.25);
  assert.equal(energyDistance([], y), undefined);
});

const link: Conformance['link'] = { name: 'conformance', sha256: 'aa', rateMbit: 20, queueMs: 50 };

function transfer(
  congestion: Transfer['congestion'],
  protocol: Transfer['protocol'],
  repeat: number,
  queueDelayMs: number,
  valid = true,
): Transfer {
  return {
    ...{ congestion, protocol, repeat, linkSeed: repeat, valid },
    invalidReasons: valid ? [] : ['the link missed its deadlines'],
    shape: {
      seconds: 10,
      throughputMbit: 20,
      queueDelayMs: { p5: 0, p50: queueDelayMs, p95: 50, mean: queueDelayMs },
      lostPercent: 1,
      firstSecondMbit: 15,
      initialWindow: { packets: 10, bytes: protocol === 'h2' ? 14_480 : 12_000 },
      windows: Array.from({ length: 8 }, () => ({
        throughputMbit: 20,
        queueDelayMs,
        lostPackets: 0,
      })),
    },
  };
}

const transfers: Transfer[] = [
  ...[20, 21, 22].map((delay, at) => transfer('cubic', 'h2', at + 1, delay)),
  ...[21, 22, 23].map((delay, at) => transfer('cubic', 'h3', at + 1, delay)),
  ...[30, 31].map((delay, at) => transfer('bbr', 'h2', at + 1, delay)),
  ...[10, 11].map((delay, at) => transfer('bbr', 'h3', at + 1, delay)),
  transfer('bbr', 'h3', 3, 30, false),
  transfer('newreno', 'h2', 1, 20),
  transfer('newreno', 'h3', 1, 20),
];

test('controllers are alike or different by the distance between their transfers', () => {
  const [cubic, bbr, newreno] = compareControllers(transfers, link);
  assert.equal(cubic?.verdict, 'alike');
  assert.ok(Math.abs((cubic.distance?.median ?? 0) - 1 / 50) < 1e-9);
  assert.equal(bbr?.verdict, 'apart');
  // The transfer that the link spoilt is excluded.
  assert.ok(Math.abs((bbr.distance?.median ?? 0) - 20 / 50) < 1e-9);
  assert.equal(bbr.h3?.transfers, 2);
  // So is the other transfer of its repeat: otherwise only one side would lose its disturbed
  // transfers.
  const [, spoilt] = compareControllers([...transfers, transfer('bbr', 'h2', 3, 90)], link);
  assert.deepEqual([spoilt?.h2?.transfers, spoilt?.h3?.transfers], [2, 2]);
  // With one transfer of each protocol, the spread within a protocol is unknown.
  assert.deepEqual([newreno?.distance?.median, newreno?.verdict], [0, 'unknown']);
  // A difference as large as the spread within a protocol does not count.
  const wild = [10, 40].flatMap((delay, at) => [
    transfer('cubic', 'h2', at + 1, delay),
    transfer('cubic', 'h3', at + 1, delay + 12),
  ]);
  assert.equal(compareControllers(wild, link)[0]?.verdict, 'alike');
  assert.deepEqual(compareControllers([transfer('bbr', 'h2', 1, 5)], link)[0]?.distance, undefined);
});

const conformance: Conformance = {
  schema: 'pronghorn-lab-conformance/1',
  status: 'finished',
  startedAt: '2026-11-22T12:00:00.000Z',
  ...{ seed: 7, repeats: 3, seconds: 10, link },
  pronghorn: { version: '0.1.0', sha256: 'bb' },
  system: 'linux',
  transfers,
  controllers: compareControllers(transfers, link),
};

test('the text has a row for each protocol and lists the excluded transfers', () => {
  const text = conformanceMarkdown(conformance);
  assert.match(
    text,
    /^\| cubic +\| TCP \(h2\) +\| +20\.00 \| 21\.0 \(20\.0–22\.0\) \| +1\.00 \|.*14480 B, 10 packets.* alike \|$/m,
  );
  assert.match(text, /^\| +\| QUIC \(h3\) .*12000 B, 10 packets/m);
  assert.match(text, /Excluded: transfer 3 of bbr over h3: the link missed its deadlines\./);
  assert.deepEqual(conformanceSchema.parse(JSON.parse(JSON.stringify(conformance))), conformance);
});

test('the section draws a point for each second of the valid transfers', () => {
  const section = parse(conformanceSection(conformance).markup);
  const points = section
    .querySelectorAll('article')
    .map((card) => card.querySelectorAll('circle').length);
  assert.deepEqual(points, [6 * 8, 4 * 8, 2 * 8]);
  assert.equal(section.querySelectorAll('tbody tr').length, 6);
});

test('the fixed link has a queue of one bandwidth-delay product', () => {
  const { facts } = conformanceLink();
  assert.deepEqual([facts.rateMbit, facts.queueMs], [20, 50]);
});

test('a campaign checks the controllers of its arms with our server', () => {
  const arm = (congestion: Arm['congestion'], server = 'pronghorn'): Arm => ({
    ...{ name: congestion, protocol: 'h3', visit: 'first' },
    congestion,
    server,
  });
  const ours = [{ name: 'pronghorn', args: [] }];
  const caddy = { name: 'caddy', args: [], command: 'caddy' };
  const arms = [arm('bbr'), arm('cubic', 'caddy'), arm('bbr'), arm('newreno')];
  assert.deepEqual(controllersOf(arms, [...ours, caddy]), ['bbr', 'newreno']);
  // The server's name does not decide whether it is ours.
  const tuned = { name: 'tuned', args: ['--limit', 'sessions=0'] };
  assert.deepEqual(
    controllersOf([arm('bbr'), arm('cubic', 'tuned')], [{ ...caddy, name: 'pronghorn' }, tuned]),
    ['cubic'],
  );
});
