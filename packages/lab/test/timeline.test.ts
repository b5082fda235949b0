import assert from 'node:assert/strict';
import test from 'node:test';
import { segmentsOf, tcpArrivals } from '../src/trace/tcp-bytes.js';
import { navigationStart } from '../src/trace/timeline.js';
import { recorded } from './recorded.js';
import { recordedTimeline, without } from './traces.js';

test('navigation start found from the document agrees with the recorded one', async () => {
  for (const name of ['loss-h2', 'loss-h3', 'slow-h2', 'auto-quic']) {
    const { browser } = await recordedTimeline(name);
    const { navigationStartMonotonicMs: recorded } = browser;
    const found = navigationStart(without(browser, 'navigationStartMonotonicMs'));
    assert.ok(recorded !== undefined && found !== undefined);
    assert.ok(Math.abs(found - recorded) < 0.2, `${name}: ${found}`);
  }
});

test('document that never arrived gives no time axis', () => {
  const never = without(
    without(recorded('h2').browser, 'navigation'),
    'navigationStartMonotonicMs',
  );
  assert.equal(navigationStart(never), undefined);
});

test('link and NetLog agree on the time at which a QUIC packet arrived', async () => {
  const { netLog, packets } = await recordedTimeline('loss-h3');
  const left = packets.flatMap(({ way, left: at }) =>
    way === 'down' && at !== undefined ? [at] : [],
  );
  const frames = netLog?.connections[0]?.streams.flatMap(({ arrived }) => arrived) ?? [];
  const delays = frames.map(({ at }) => {
    // The log truncates its times to whole milliseconds.
    const latest = left.filter((each) => each <= at + 1).at(-1);
    assert.ok(latest !== undefined);
    return at - latest;
  });
  delays.sort((a, b) => a - b);
  assert.ok(
    (delays[Math.floor(delays.length / 2)] as number) < 1,
    `median ${delays[delays.length >> 1]}`,
  );
});

test('link and developer tools agree on the time of the first request', async () => {
  const { requests, packets } = await recordedTimeline('slow-h2');
  const [document] = requests;
  assert.ok(document?.sent !== undefined);
  const sent = document.sent;
  const near = packets
    .filter(
      ({ way, payload, nearPort }) =>
        way === 'up' && payload > 0 && `tcp ${nearPort}` === document.connection,
    )
    .map(({ arrived }) => Math.abs(arrived - sent));
  assert.ok(Math.min(...near) < 1, `${Math.min(...near)}`);
});

test('requests have the connection that carried them, with and without a NetLog', async () => {
  for (const [name, connection] of [
    ['loss-h2', 'tcp 54698'],
    ['loss-h3', 'udp 34547'],
    ['syn-h2', 'tcp 47404'],
  ] as const) {
    const { requests } = await recordedTimeline(name);
    assert.ok(requests.length >= 8);
    assert.deepEqual([...new Set(requests.map((request) => request.connection))], [connection]);
  }
});

test("server's qlog is shifted to the same clock", async () => {
  const { server, packets, baseRoundTripMs } = await recordedTimeline('loss-h3');
  const trace = server.get('udp 34547');
  assert.equal(trace?.requests.length, 32);
  const first = packets.find(({ way, protocol }) => way === 'up' && protocol === 'udp');
  assert.ok(first?.left !== undefined && baseRoundTripMs !== undefined);
  const handshake = trace.requests[0];
  // The first request takes a round trip for the handshake after the first packet.
  assert.ok(handshake !== undefined && handshake.requestAt - first.left > baseRoundTripMs);
  const lost = packets.filter(({ way, fate }) => way === 'down' && fate === 'lost').length;
  assert.equal(trace.lost.length, lost);
});

test('HTTP/2 content arrives at the link before the browser gets it, and all of it arrives', async () => {
  const { netLog, flows } = await recordedTimeline('loss-h2');
  const connection = netLog?.connections[0];
  const flow = flows.find(({ nearPort }) => nearPort === connection?.nearPort);
  assert.ok(connection && flow);
  const arrivals = tcpArrivals(connection, segmentsOf(flow, 'down'));
  let held = 0;
  for (const { id, delivered } of connection.streams) {
    const pieces = arrivals.get(id) ?? [];
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    const total = delivered.at(-1)?.bytes ?? 0;
    assert.equal(bytes, total, `stream ${id}`);
    for (const { at, offset, length } of pieces) {
      const end = Math.min(offset + length, total);
      const read = delivered.find((each) => each.bytes >= end);
      assert.ok(read !== undefined && at <= read.at + 1.5, `stream ${id} at ${offset}`);
      if (read.at - at > 20) held += length;
    }
  }
  assert.ok(held > 50_000, 'content waited behind lost packets');
});
