import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { readQuicCongestion } from '../src/load/quic-congestion.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-netlog-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

// Lines as written by Chromium 156, with a shortened table of names.
const NAMES =
  '{"constants":{"logEventTypes":{"QUIC_CONGESTION_CONTROL_CONFIGURED":271,"QUIC_SESSION":263}},\n"events": [\n';
const CONFIGURED =
  '{"params":{"congestion_control_type":"CUBIC_BYTES","initial_congestion_window":32,"use_pacing":true},' +
  '"phase":0,"source":{"id":31,"start_time":"1","type":10},"time":"2","type":271},\n';
const OTHER =
  '{"params":{"host":"bench.test"},"phase":1,"source":{"id":31,"type":10},"time":"1","type":263},\n';

async function read(text: string): ReturnType<typeof readQuicCongestion> {
  const path = join(folder, 'netlog.json');
  writeFileSync(path, text);
  return readQuicCongestion(path);
}

test('congestion control is found among other events', async () => {
  const found = await read(`${NAMES}${OTHER}${CONFIGURED}${OTHER}]}\n`);
  assert.deepEqual(found, { algorithm: 'CUBIC_BYTES', initialWindowPackets: 32 });
});

test('truncated log is read as far as it goes', async () => {
  const found = await read(`${NAMES}${CONFIGURED}${OTHER.slice(0, 40)}`);
  assert.equal(found?.algorithm, 'CUBIC_BYTES');
});

test('log without a QUIC connection has none', async () => {
  assert.equal(await read(`${NAMES}${OTHER}]}\n`), undefined);
});

test('event of another type with that number in its values is skipped', async () => {
  assert.equal(
    await read(
      `${NAMES}{"params":{"congestion_control_type":"X","note":{"type":271}},"type":263},\n]}`,
    ),
    undefined,
  );
});
