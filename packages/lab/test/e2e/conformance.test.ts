import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { conformanceSchema } from '../../src/conformance/conformance.js';
import { lab } from './lab.js';

/** Needs `pronghorn` and permission to create namespaces. */

const folder = mkdtempSync(join(tmpdir(), 'lab-conformance-e2e-'));
after(() => {
  rmSync(folder, { recursive: true });
});

test('both versions of a controller fill the fixed link, starting with their own initial window', () => {
  const out = join(folder, 'out');
  const options = [
    '--congestion',
    'newreno',
    '--repeats',
    '1',
    '--seconds',
    '3',
    '--seed',
    '7',
    '--out',
    out,
  ];
  const run = lab(['conformance', ...options]);
  const conformance = conformanceSchema.parse(
    JSON.parse(readFileSync(join(out, 'conformance.json'), 'utf8')),
  );
  assert.equal(conformance.status, 'finished', run.stderr);
  assert.deepEqual(conformance.transfers.map(({ protocol }) => protocol).sort(), ['h2', 'h3']);
  for (const { protocol, shape, valid, invalidReasons } of conformance.transfers) {
    const faults = invalidReasons.filter((reason) => reason !== 'the link missed its deadlines');
    assert.deepEqual(faults, [], protocol);
    const { packets = 0, bytes = 0 } = shape.initialWindow ?? {};
    assert.ok(packets > 0 && packets <= 16 && bytes < 22_000, `${protocol}: ${packets}, ${bytes}`);
    assert.ok(shape.windows.length >= 1, JSON.stringify(shape));
    // On a machine that is too busy for the link, a server may send less, and part of its window
    // only after an acknowledgement.
    if (!valid) continue;
    assert.ok(packets >= 9 && bytes > 8_000, `${protocol}: ${packets}, ${bytes}`);
    assert.ok(shape.throughputMbit > 15 && shape.throughputMbit < 20.1, JSON.stringify(shape));
    assert.ok(shape.queueDelayMs.p95 <= 50.1, JSON.stringify(shape));
  }
  const valid = conformance.transfers.every((each) => each.valid);
  assert.equal(run.status, valid ? 0 : 3, run.stderr);
  assert.match(run.stdout, /^\| newreno +\| TCP \(h2\)/m);
  // One point for each second of the valid transfers.
  const drawn = readFileSync(join(out, 'conformance.html'), 'utf8').match(/<circle/g)?.length ?? 0;
  const seconds = conformance.transfers
    .filter((each) => each.valid)
    .flatMap(({ shape }) => shape.windows);
  assert.equal(drawn, seconds.length);
});
