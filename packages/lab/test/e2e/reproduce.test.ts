import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { Campaign } from '../../src/campaign/campaign-file.js';
import type { Conformance } from '../../src/conformance/conformance.js';
import { findStudy, runStudy } from '../../src/reproduce/reproduce.js';
import type { CriteriaFile } from '../../src/reproduce/criteria-file.js';
import { CLI, samplesOf } from './lab.js';

/** Needs `pronghorn`, Chromium and permission to create namespaces. */

const folder = mkdtempSync(join(tmpdir(), 'lab-reproduce-e2e-'));
after(() => {
  rmSync(folder, { recursive: true });
});

/**
 * Starts the study with the shortest possible check of the congestion controllers, and ends it
 * after a load.
 */
async function begin(out: string): Promise<Campaign> {
  const ending = new AbortController();
  const look = setInterval(() => {
    if (existsSync(join(out, 'samples.jsonl')) && samplesOf(out).length > 0) ending.abort();
  }, 20);
  try {
    return await runStudy(findStudy('kiwee'), {
      ...{ blocks: 1, profiles: ['dc-near'], out, seed: undefined, resume: false, keepAll: false },
      ...{
        pronghorn: process.env.PRONGHORN,
        chromium: process.env.CHROMIUM,
        signal: ending.signal,
      },
      conformance: { repeats: 1, seconds: 3 },
      machine: { share: true, wait: false },
    });
  } finally {
    clearInterval(look);
  }
}

/** Resumes the study by its command, and interrupts it after the first load. */
async function goOn(
  out: string,
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [CLI, 'reproduce', 'kiwee', '--resume', '--out', out], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr, interrupted] = ['', '', false];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    // Each load has a line that begins with its number. A second signal would end the process at
    // once.
    if (!interrupted && /^\[ *\d+\/\d+\] .*\n/m.test(stderr)) interrupted = child.kill('SIGINT');
  });
  const status = await new Promise<number | null>((resolve) => child.once('close', resolve));
  return { status, stdout, stderr };
}

test('criteria are written before the first load, and an interrupted study resumes and is judged', async () => {
  const out = join(folder, 'out');
  const read = (name: string): unknown => JSON.parse(readFileSync(join(out, name), 'utf8'));

  assert.equal((await begin(out)).status, 'interrupted');
  const criteria = read('criteria.json') as CriteriaFile;
  const checked = read('conformance.json') as Conformance;
  assert.deepEqual([checked.status, checked.transfers.length], ['finished', 2]);
  assert.ok(criteria.writtenAt < (samplesOf(out)[0]?.startedAt ?? ''));

  const before = samplesOf(out).length;
  const { status, stdout, stderr } = await goOn(out);
  assert.equal(status, 130, stderr);
  assert.match(stdout, /This campaign is not finished: 0 of 1 blocks so far/);
  assert.ok(samplesOf(out).length > before);
  const campaign = read('campaign.json') as Campaign;
  assert.equal(campaign.sittings.length, 2);
  assert.deepEqual(
    campaign.profiles.map(({ name }) => name),
    ['dc-near'],
  );
  assert.equal((read('criteria.json') as CriteriaFile).sha256, criteria.sha256);
  assert.deepEqual(read('conformance.json'), checked);
  assert.match(
    readFileSync(join(out, 'reproduction.md'), 'utf8'),
    /\| Nuremberg +\| dc-near, kiwee-like /,
  );
});
