import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import {
  flowBytes,
  readLinkReport,
  type LinkReading,
  type LinkReport,
} from '../src/run/link-report.js';
import { recorded } from './recorded.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-link-report-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

function read(text: string): LinkReading {
  const path = join(folder, 'link.json');
  writeFileSync(path, text);
  return readLinkReport(path);
}

/** Returns the recorded report in the current layout. */
function ofNow(): LinkReport {
  return { ...recorded('h3').link, schema: 'pronghorn-link-report/3' };
}

test('report is read completely, and of the commands only the cost of the server side', () => {
  const link = ofNow();
  const command = (user: number): object => ({
    argv: ['/somewhere'],
    exit_code: 0,
    cpu_seconds: { user, system: 0.5 },
  });
  const { user, system } = link.cpu_seconds.process;
  const warm_ups = [command(0), { ...command(0), exit_code: null }];
  const reading = read(
    JSON.stringify({ ...link, commands: { near: command(2), far: command(1), warm_ups } }),
  );
  assert.ok(reading.kind === 'report');
  const expected = {
    ...link,
    far_cpu_seconds: 1.5,
    total_cpu_seconds: 5 + user + system,
    warm_up_exit_codes: [0, null],
  };
  assert.deepEqual(JSON.parse(JSON.stringify(reading.report)), expected);
});

test('missing or truncated report is undefined', () => {
  assert.deepEqual(readLinkReport(join(folder, 'nothing')), {
    kind: 'problem',
    problem: 'no report from the link',
  });
  assert.deepEqual(read('{"schema":'), { kind: 'problem', problem: 'no report from the link' });
});

test('report with another layout is rejected with the differing key', () => {
  const link = ofNow();
  const other = read(JSON.stringify({ ...link, schema: 'pronghorn-link-report/1' }));
  assert.match(
    other.kind === 'problem' ? other.problem : '',
    /invalid report from the link: schema: /,
  );
  const lacking = read(JSON.stringify({ ...link, down: { ...link.down, tun_drops: undefined } }));
  assert.match(
    lacking.kind === 'problem' ? lacking.problem : '',
    /invalid report from the link: down\.tun_drops: /,
  );
});

test('idle CPU time and the end of slow start are read, and null where unknown', () => {
  const link = ofNow();
  const delays = { emulator: 0, link: 0.01, near: 0.5, far: null };
  const machine = {
    seconds: 1.5,
    end_marked: true,
    processors: 2,
    idle_seconds: 1.25,
    steal_seconds: 0.5,
    cpu_pressure_seconds: null,
    run_delay_seconds: delays,
  };
  const hystart = {
    train_detected: 1,
    train_cwnd_packets: 40,
    delay_detected: 0,
    delay_cwnd_packets: 0,
  };
  const reading = read(JSON.stringify({ ...link, machine, hystart }));
  assert.ok(reading.kind === 'report');
  assert.deepEqual([reading.report.machine, reading.report.hystart], [machine, hystart]);
  const without = read(JSON.stringify({ ...link, machine: null, hystart: null }));
  assert.ok(without.kind === 'report' && without.report.hystart === null);
  const torn = read(
    JSON.stringify({
      ...link,
      machine: { ...machine, run_delay_seconds: { ...delays, far: 'long' } },
    }),
  );
  assert.match(
    torn.kind === 'problem' ? torn.problem : '',
    /invalid report from the link: machine\.run_delay_seconds\.far: /,
  );
});

test('bytes are summed over the flows of a transport and port', () => {
  const { link } = recorded('h2');
  const tcp = link.flows.filter((flow) => flow.protocol === 'tcp' && flow.far_port === 443);
  assert.ok(tcp.length > 0);
  assert.equal(
    flowBytes(link, 'tcp', 443).down,
    tcp.reduce((sum, flow) => sum + flow.down.bytes, 0),
  );
  assert.deepEqual(flowBytes(link, 'udp', 443), { up: 0, down: 0 });
  assert.deepEqual(flowBytes(link, 'tcp', 8443), { up: 0, down: 0 });
});
