import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { Campaign } from '../../src/campaign-file.js';
import type { Conformance } from '../../src/conformance/conformance.js';
import type { CriteriaFile } from '../../src/reproduce/criteria-file.js';
import type { Sample } from '../../src/sample.js';
import { packageFolder } from '../places.js';

/** Needs `pronghorn`, Chromium and the right to make namespaces. */

const folder = mkdtempSync(join(tmpdir(), 'lab-reproduce-e2e-'));
after(() => {
  rmSync(folder, { recursive: true });
});

/** Runs the command until it has told of so many loads, and then interrupts it. */
async function reproduce(args: readonly string[], loads: number): Promise<{ status: number | null; stdout: string }> {
  const cli = join(packageFolder, 'dist/cli.js');
  const child = spawn(process.execPath, [cli, 'reproduce', 'kiwee', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  // The check of the congestion controllers comes first, six transfers of ten seconds.
  const limit = setTimeout(() => child.kill('SIGKILL'), 300_000);
  let [stdout, stderr, interrupted] = ['', '', false];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    // A line for each load, in front of it its number. A second signal would end the process at once.
    const told = stderr.match(/^\[ *\d+\/\d+\] .*\n/gm)?.length ?? 0;
    if (!interrupted && told >= loads) interrupted = child.kill('SIGINT');
  });
  const status = await new Promise<number | null>((resolve) => {
    child.once('close', resolve);
  });
  clearTimeout(limit);
  return { status, stdout };
}

test('criteria are there before the first load, and an interrupted study goes on and is judged', async () => {
  const out = join(folder, 'out');
  const read = (name: string): unknown => JSON.parse(readFileSync(join(out, name), 'utf8'));
  const samples = (): Sample[] => {
    const lines = readFileSync(join(out, 'samples.jsonl'), 'utf8').trim().split('\n');
    return lines.map((line) => JSON.parse(line) as Sample);
  };

  const first = await reproduce(['--blocks', '1', '--profile', 'dc-near', '--out', out], 1);
  assert.equal(first.status, 130);
  const criteria = read('criteria.json') as CriteriaFile;
  assert.equal((read('conformance.json') as Conformance).status, 'finished');
  assert.ok(criteria.writtenAt < (samples()[0]?.startedAt ?? ''));
  assert.match(first.stdout, /This campaign has not run to its end: 0 of 1 blocks so far/);

  const before = samples().length;
  const second = await reproduce(['--resume', '--out', out], 1);
  assert.equal(second.status, 130);
  assert.ok(samples().length > before);
  const campaign = read('campaign.json') as Campaign;
  assert.equal(campaign.sittings.length, 2);
  assert.deepEqual(
    campaign.profiles.map(({ name }) => name),
    ['dc-near'],
  );
  assert.equal((read('criteria.json') as CriteriaFile).sha256, criteria.sha256);
  assert.match(readFileSync(join(out, 'reproduction.md'), 'utf8'), /\| Nuremberg +\| dc-near, kiwee-like /);
});
