import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { flowBytes, readLinkReport, type LinkReading } from '../src/link-report.js';
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

test('report is read with all that it holds, and of the commands only what the far end cost', () => {
  const { link } = recorded('h3');
  const command = (user: number): object => ({
    argv: ['/somewhere'],
    exit_code: 0,
    cpu_seconds: { user, system: 0.5 },
  });
  const { user, system } = link.cpu_seconds.process;
  const warm_ups = [command(0), { ...command(0), exit_code: null }];
  const reading = read(JSON.stringify({ ...link, commands: { near: command(2), far: command(1), warm_ups } }));
  assert.ok(reading.kind === 'report');
  const expected = {
    ...link,
    far_cpu_seconds: 1.5,
    total_cpu_seconds: 5 + user + system,
    warm_up_exit_codes: [0, null],
  };
  assert.deepEqual(JSON.parse(JSON.stringify(reading.report)), expected);
});

test('report that is missing or torn is none', () => {
  assert.deepEqual(readLinkReport(join(folder, 'nothing')), { kind: 'problem', problem: 'the link wrote no report' });
  assert.deepEqual(read('{"schema":'), { kind: 'problem', problem: 'the link wrote no report' });
});

test('report of another layout is refused with the key that differs', () => {
  const { link } = recorded('h3');
  const other = read(JSON.stringify({ ...link, schema: 'pronghorn-link-report/2' }));
  assert.match(other.kind === 'problem' ? other.problem : '', /is not understood: schema: /);
  const lacking = read(JSON.stringify({ ...link, down: { ...link.down, tun_drops: undefined } }));
  assert.match(lacking.kind === 'problem' ? lacking.problem : '', /is not understood: down\.tun_drops: /);
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
