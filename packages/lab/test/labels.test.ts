import assert from 'node:assert/strict';
import test from 'node:test';
import { labelsOf, summariseLabels } from '../src/trace/labels.js';
import type { Label, LabelKind } from '../src/trace/label.js';
import type { Packet } from '../src/trace/packets.js';
import { packet, packetTimeline, recordedTimeline, without } from './traces.js';

async function found(name: string, kind: LabelKind): Promise<Label[]> {
  return labelsOf(await recordedTimeline(name)).filter((label) => label.kind === kind);
}

function near(actual: number | undefined, expected: number, within: number): void {
  assert.ok(
    actual !== undefined && Math.abs(actual - expected) <= within,
    `${actual} is not ${expected} ± ${within}`,
  );
}

const ALL = [
  'loss-h2',
  'loss-h3',
  'slow-h2',
  'syn-h2',
  'bad-h3',
  'window-h2',
  'window-h3',
  'no-window-h3',
  'auto-quic',
  'auto-blocked',
];

/** Recorded loads in which each kind must be found; it must not be found in any other. */
const EXPECTED: Partial<Record<LabelKind, readonly string[]>> = {
  'syn-retransmitted': ['syn-h2'],
  'syn-ack-retransmitted': ['syn-h2'],
  'initial-lost': ['bad-h3'],
  'hol-stall': ['loss-h2', 'loss-h3', 'syn-h2'],
  'flow-control-stall': ['window-h2', 'window-h3'],
  'race-won-by-tcp': [],
  'fell-back-to-tcp': ['auto-blocked'],
  rto: ['syn-h2'],
  'slow-server': ['slow-h2'],
  'slow-start-end': ['loss-h2', 'loss-h3', 'syn-h2', 'bad-h3'],
  'network-bound': [],
  'cpu-bound': [],
};

for (const [kind, names] of Object.entries(EXPECTED)) {
  test(`${kind} is found where it was planted, and nowhere else`, async () => {
    const hits = [];
    for (const name of ALL) if ((await found(name, kind as LabelKind)).length > 0) hits.push(name);
    assert.deepEqual(hits, names);
  });
}

test('dropped SYN is found with the second that it cost', async () => {
  const [first] = await found('syn-h2', 'syn-retransmitted');
  near(first?.seconds, 1, 0.05);
  assert.match(first?.detail ?? '', /the link had lost the first one/);
});

test('SYN that is retransmitted because its answer was lost says so', async () => {
  const labels = await found('syn-h2', 'syn-retransmitted');
  assert.ok(labels.some(({ detail }) => detail.includes('the link had lost the SYN-ACK')));
});

test('300 ms added at the server are found for the document and the burst of resources', async () => {
  const labels = await found('slow-h2', 'slow-server');
  assert.deepEqual(
    labels.map(({ streams }) => streams),
    [1, 7],
  );
  near(labels[1]?.seconds, 0.3, 0.01);
});

test('window of 64 KiB is found from packets alone, over QUIC and over TCP', async () => {
  for (const [name, size] of [
    ['window-h3', '65 KiB'],
    ['window-h2', '64 KiB'],
  ] as const) {
    const labels = await found(name, 'flow-control-stall');
    assert.ok(
      labels.some(
        ({ detail }) => detail.includes(`a fixed window: `) && detail.includes(`up to ${size}`),
      ),
      `${name}: ${labels.map(({ detail }) => detail).join('; ')}`,
    );
  }
});

test('one lost packet stalls all streams of HTTP/2 and few of HTTP/3', async () => {
  const [h2] = await found('loss-h2', 'hol-stall');
  assert.equal(h2?.streams, 23);
  near(h2.seconds, 0.084, 0.005);
  const h3 = await found('loss-h3', 'hol-stall');
  assert.ok(h3.length > 0 && h3.every(({ streams = 99 }) => streams <= 3));
});

test('no stalls are claimed for HTTP/3 without a NetLog', async () => {
  const timeline = without(await recordedTimeline('loss-h3'), 'netLog');
  assert.deepEqual(
    labelsOf(timeline).filter(({ kind }) => kind === 'hol-stall'),
    [],
  );
});

const HELLO = { sequence: 1000, kind: 'PA' };

test('packets that were only reordered are no stall', () => {
  const order = [
    packet(0, 'down', { ...HELLO, payload: 100, left: 60 }),
    packet(1, 'down', { sequence: 1100, payload: 100, left: 30 }),
  ];
  assert.deepEqual(kinds(order), []);
  const lost = [
    packet(0, 'down', { ...HELLO, payload: 100, fate: 'lost' }),
    packet(1, 'down', { sequence: 1100, payload: 100, left: 30 }),
    packet(40, 'down', { ...HELLO, payload: 100, left: 60 }),
  ];
  assert.ok(kinds(lost).includes('hol-stall'));
});

function kinds(packets: readonly Packet[]): LabelKind[] {
  return labelsOf(packetTimeline([packet(-50, 'up', { kind: 'S', sequence: 1 }), ...packets])).map(
    ({ kind }) => kind,
  );
}

test('sequence numbers that wrap are handled', () => {
  const start = 0xffff_fff0;
  const wrapped = [
    packet(0, 'down', { kind: 'SA', sequence: start - 1 }),
    packet(1, 'down', { sequence: start, payload: 100, fate: 'lost' }),
    packet(2, 'down', { sequence: (start + 100) >>> 0, payload: 100, left: 22 }),
    packet(41, 'down', { sequence: start, payload: 100, left: 61 }),
  ];
  const stall = labelsOf(packetTimeline(wrapped)).find(({ kind }) => kind === 'hol-stall');
  near(stall?.seconds, 0.039, 1e-9);
});

const LOST_TAIL = [
  packet(0, 'down', { ...HELLO, payload: 1000 }),
  packet(1, 'down', { sequence: 2000, payload: 1000, fate: 'lost' }),
  packet(25, 'up', { acknowledgement: 2000 }),
];

test('retransmission by a timer is distinguished from one by an acknowledgement', () => {
  const again = (at: number): Packet => packet(at, 'down', { sequence: 2000, payload: 1000 });
  const byTimer = [...LOST_TAIL, again(260)];
  assert.deepEqual(kinds(byTimer), ['tail-loss', 'rto']);
  // The acknowledgement reaches the server at 259, and the server answers at once.
  const prompted = [...LOST_TAIL, packet(239, 'up', { acknowledgement: 2000 }), again(260)];
  assert.deepEqual(kinds(prompted), ['tail-loss']);
});

test('loss in the middle of a burst is no tail loss', () => {
  const [head, lost, ...rest] = LOST_TAIL as [Packet, Packet, Packet];
  const more = packet(2, 'down', { sequence: 3000, payload: 1000 });
  const again = packet(45, 'down', { sequence: 2000, payload: 1000 });
  assert.ok(!kinds([head, lost, more, ...rest, again]).includes('tail-loss'));
});

/**
 * Returns seven bursts, one every 50 ms, of the sizes that `bytes` returns. The round trip is 40
 * ms.
 */
function bursts(bytes: (round: number) => number): Packet[] {
  let sequence = 1;
  return [0, 1, 2, 3, 4, 5, 6].flatMap((round) => {
    const packets = Array.from({ length: Math.ceil(bytes(round) / 1000) }, (_, index) => {
      const each = packet(60 + round * 50 + index / 10, 'down', { sequence, payload: 1000 });
      sequence += 1000;
      return each;
    });
    return [...packets, packet(80 + round * 50, 'up', { acknowledgement: sequence })];
  });
}

test('window that grows by a packet per round trip is not a fixed one', () => {
  assert.ok(kinds(bursts(() => 30_000)).includes('flow-control-stall'));
  assert.ok(!kinds(bursts((round) => 30_000 + round * 1_000)).includes('flow-control-stall'));
});

test('equal responses to consecutive requests are not a window', () => {
  const timeline = packetTimeline(bursts(() => 30_000));
  const requests = [0, 1, 2, 3, 4, 5, 6].map((round) => ({
    url: `https://bench.test/${round}`,
    protocol: 'h2',
    connection: 'tcp 40000',
    failed: false,
    start: 30 + round * 50,
    sent: 30 + round * 50,
    end: 75 + round * 50,
  }));
  assert.ok(!labelsOf({ ...timeline, requests }).some(({ kind }) => kind === 'flow-control-stall'));
});

test('socket that is limited by its window or buffer is labelled from TCP_INFO', () => {
  const row = (at: number, receiveWindowLimitedMs: number) => ({
    at,
    end: 'far' as const,
    nearPort: 40000,
    farPort: 443,
    roundTripMs: 40,
    windowPackets: 50,
    segmentBytes: 1448,
    inFlightPackets: 45,
    busyMs: at,
    receiveWindowLimitedMs,
    sendBufferLimitedMs: 0,
    congestion: 'cubic',
  });
  const timeline = packetTimeline(bursts((round) => 20_000 + round * 5_000));
  const limited = labelsOf({ ...timeline, tcpInfo: [row(100, 0), row(110, 8), row(400, 250)] });
  const label = limited.find(({ kind }) => kind === 'flow-control-stall');
  assert.equal(label?.at, 0.11);
  assert.equal(label.seconds, 0.25);
  const little = labelsOf({ ...timeline, tcpInfo: [row(100, 0), row(110, 8)] });
  assert.ok(!little.some(({ kind }) => kind === 'flow-control-stall'));
});

test('link that sends all the time makes a load network-bound', async () => {
  const timeline = await recordedTimeline('no-window-h3');
  const bound = (down: number | null): boolean =>
    labelsOf(timeline, { rateMbit: { down } }).some(({ kind }) => kind === 'network-bound');
  // 900 KB in some 450 ms are 17 Mbit/s.
  assert.equal(bound(50), false);
  assert.equal(bound(16), true);
  assert.equal(bound(null), false);
});

test('process that uses a whole processor makes a load CPU-bound', async () => {
  const timeline = await recordedTimeline('slow-h2');
  const labels = (server: number): Label[] =>
    labelsOf(timeline, { cpu: { seconds: { server, browser: { network: 0.4 } }, overSeconds: 1 } });
  assert.ok(!labels(0.8).some(({ kind }) => kind === 'cpu-bound'));
  const label = labels(0.9).find(({ kind }) => kind === 'cpu-bound');
  assert.equal(label?.detail, 'the server used 90 % of a processor');
});

test('race that TCP won is distinguished from QUIC that does not work', async () => {
  const timeline = await recordedTimeline('auto-blocked');
  const answered = timeline.flows.map((flow) => {
    if (flow.protocol !== 'udp') return flow;
    const answer = packet(120, 'down', {
      protocol: 'udp',
      nearPort: flow.nearPort,
      kind: 'initial',
      payload: 1200,
    });
    return { ...flow, packets: [...flow.packets, answer] };
  });
  const kindsOf = (flows: typeof answered): LabelKind[] =>
    labelsOf({ ...timeline, flows }).map(({ kind }) => kind);
  assert.ok(kindsOf(answered).includes('race-won-by-tcp'));
  assert.ok(!kindsOf(answered).includes('fell-back-to-tcp'));
});

test('requests that return to TCP after responses over HTTP/3 are a fallback', async () => {
  const timeline = await recordedTimeline('auto-quic');
  const last = timeline.requests.at(-1);
  assert.ok(last);
  const requests = [
    ...timeline.requests,
    { ...last, protocol: 'h2', start: 900, connection: 'tcp 1' },
  ];
  const label = labelsOf({ ...timeline, requests }).find(({ kind }) => kind === 'fell-back-to-tcp');
  assert.equal(label?.at, 0.9);
  assert.match(label.detail, /^8 responses came over HTTP\/3/);
});

test('summary has one line for each kind, with the longest', async () => {
  const labels = await found('loss-h2', 'hol-stall');
  const [line, ...rest] = summariseLabels(labels);
  assert.deepEqual(rest, []);
  assert.equal(line?.count, labels.length);
  assert.equal(line.longest.seconds, Math.max(...labels.map(({ seconds = 0 }) => seconds)));
});
