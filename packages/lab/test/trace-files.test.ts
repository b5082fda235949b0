import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { LabError } from '../src/io/errors.js';
import { readNetLog } from '../src/trace/netlog.js';
import { baseRoundTrip, flowsOf, isLost, readPackets } from '../src/trace/packets.js';
import { readTcpInfo } from '../src/trace/tcp-info.js';
import { traceFolder } from './traces.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-trace-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

function file(text: string): string {
  const path = join(folder, 'file');
  writeFileSync(path, text);
  return path;
}

const PACKETS =
  'arrived_ns,left_ns,way,protocol,near_port,far_port,bytes,payload,fate,queue_bytes,kind,sequence,acknowledgement\n';
const SYN = '5000000000,5020000000,up,tcp,40000,443,60,0,delivered,0,S,4294967295,0\n';
const LOST = '5000500000,,down,udp,40001,443,1228,1200,lost,3000,initial,,\n';

test('packet of a protocol without ports and payload is read', async () => {
  const [header] = PACKETS.split('\n');
  const icmp = '5000000000,5040000000,down,icmp,,,576,,delivered,0,,,\n';
  const [packet] = await readPackets(file(`${header}\n${icmp}`), 5_000);
  assert.deepEqual([packet?.protocol, packet?.bytes, packet?.payload], ['icmp', 576, 0]);
});

test('packets have times since navigation start, and empty values are undefined', async () => {
  const [syn, lost] = await readPackets(file(PACKETS + SYN + LOST), 4_990);
  assert.ok(syn && lost);
  assert.equal(syn.arrived, 10);
  assert.equal(syn.left, 30);
  assert.equal(syn.sequence, 4294967295);
  assert.equal(lost.left, undefined);
  assert.equal(lost.sequence, undefined);
  assert.equal(lost.queueBytes, 3000);
  assert.ok(isLost(lost) && !isLost(syn));
});

test('truncated last packet is left out', async () => {
  assert.equal((await readPackets(file(PACKETS + SYN + LOST.slice(0, 30)), 0)).length, 1);
});

test('invalid packet before the last line is an error that names its line', async () => {
  const bad = SYN.replace('up', 'sideways');
  await assert.rejects(readPackets(file(PACKETS + bad + SYN), 0), (thrown) => {
    assert.ok(thrown instanceof LabError);
    assert.match(thrown.message, /invalid line 2/);
    return true;
  });
});

test('packet file without a column is an error that names the column', async () => {
  await assert.rejects(
    readPackets(file(PACKETS.replace(',fate', '') + SYN), 0),
    /missing column fate/,
  );
});

test('fragments and packets without ports belong to no flow', async () => {
  const ping = '5000000000,5020000000,up,icmp,,,84,0,delivered,0,,,\n';
  const flows = flowsOf(await readPackets(file(PACKETS + SYN + ping + LOST), 0));
  assert.deepEqual(
    flows.map(({ name }) => name),
    ['tcp 40000', 'udp 40001'],
  );
});

test('base round trip is the sum of the shortest one-way times', async () => {
  const packets = await readPackets(join(traceFolder('loss-h2'), 'packets.csv'), 0);
  const roundTrip = baseRoundTrip(packets);
  assert.ok(roundTrip !== undefined && roundTrip > 70 && roundTrip < 70.5, `${roundTrip}`);
  assert.equal(baseRoundTrip(packets.filter(({ way }) => way === 'up')), undefined);
});

test('TCP_INFO rows keep an unset threshold undefined', async () => {
  const head =
    'time_ns,end,near_port,far_port,state,rtt_us,rtt_var_us,rto_us,cwnd_packets,ssthresh_packets,mss,unacked_packets,' +
    'lost_packets,retransmitted_packets,bytes_acked,bytes_received,bytes_sent,bytes_retransmitted,busy_us,' +
    'receive_window_limited_us,send_buffer_limited_us,delivery_rate_bytes_per_second,congestion\n';
  const row = (threshold: string): string =>
    `1000000,far,40000,443,established,70500,900,271000,10,${threshold},1448,4,0,0,1,2,3,0,1500,0,250,1000,cubic\n`;
  const [first, second] = await readTcpInfo(file(head + row('') + row('7')), 0);
  assert.ok(first);
  assert.equal(first.thresholdPackets, undefined);
  assert.equal(second?.thresholdPackets, 7);
  assert.equal(first.roundTripMs, 70.5);
  assert.equal(first.sendBufferLimitedMs, 0.25);
  assert.equal(first.congestion, 'cubic');
});

test('NetLog of HTTP/3 has streams with their frames, handshake and transport', async () => {
  const { connections } = await readNetLog(join(traceFolder('loss-h3'), 'netlog.json'), 0);
  const [connection] = connections;
  assert.equal(connections.length, 1);
  assert.equal(connection?.protocol, 'h3');
  assert.equal(connection.nearPort, 34547);
  assert.equal(connection.streams.length, 32);
  assert.equal(connection.streams[0]?.url, 'https://bench.test/');
  assert.deepEqual(
    [connection.quic?.version, connection.quic?.congestion, connection.quic?.zeroRtt],
    ['RFCv1', 'CUBIC_BYTES', 'NotAttempted'],
  );
  const { from, to } = connection.handshake;
  assert.ok(to !== undefined && to - from > 70 && to - from < 1_000);
  for (const { arrived, delivered, endedAt, url } of connection.streams) {
    assert.ok(endedAt !== undefined, url);
    const total = Math.max(...arrived.map(({ offset, length }) => offset + length));
    assert.equal(delivered.at(-1)?.bytes, total, url);
  }
});

test('NetLog of HTTP/2 delivers the bytes of the bodies', async () => {
  const { connections } = await readNetLog(join(traceFolder('loss-h2'), 'netlog.json'), 0);
  const [connection] = connections;
  assert.equal(connections.length, 1);
  assert.equal(connection?.protocol, 'h2');
  assert.equal(connection.nearPort, 54698);
  const bytes = connection.streams.reduce(
    (sum, { delivered }) => sum + (delivered.at(-1)?.bytes ?? 0),
    0,
  );
  assert.equal(bytes, 300_000);
  assert.ok(connection.streams.every(({ endedAt }) => endedAt !== undefined));
});

test('truncated NetLog is read as far as it goes', async () => {
  const whole = readFileSync(join(traceFolder('loss-h3'), 'netlog.json'), 'utf8');
  const { connections } = await readNetLog(file(whole.slice(0, whole.length / 2)), 0);
  const streams = connections[0]?.streams ?? [];
  assert.ok(streams.length > 0);
  assert.ok(streams.some(({ endedAt }) => endedAt === undefined));
});

test('file that is not a NetLog has no connections', async () => {
  assert.deepEqual(await readNetLog(file('{}\n[]\n'), 0), { connections: [], races: [] });
});

test('race of QUIC and TCP is read with its reason, its delay and its winner', async () => {
  for (const [name, wonBy] of [
    ['auto-quic', 'quic'],
    ['auto-blocked', 'tcp'],
  ] as const) {
    const { races } = await readNetLog(join(traceFolder(name), 'netlog.json'), 0);
    const race = races.find(({ url }) => url === 'https://bench.test/');
    assert.equal(race?.because, 'dns_alpn_h3');
    assert.equal(race.wonBy, wonBy);
    assert.equal(race.heldBackMs, 0);
    assert.deepEqual(race.httpsRecords, ['h3', 'h2', 'http/1.1']);
  }
});
