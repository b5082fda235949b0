import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { packageFolder } from '../places.js';
import { faultsOf, lab, samplesOf } from './lab.js';
import { startServer } from './server.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-live-'));
after(() => {
  rmSync(folder, { recursive: true });
});

test('page is loaded from its own server over each protocol, without a link', async (t) => {
  const site = join(folder, 'site');
  const made = lab(['page', join(packageFolder, 'test/fixtures/page.toml'), '--out', site]);
  assert.equal(made.status, 0, made.stderr);
  const { address, spki } = await startServer(t, 'serve', site, folder);
  const plan = join(folder, 'live.toml');
  const out = join(folder, 'out');
  const arms = ['h2', 'h3']
    .map((name) => `[[arms]]\nname = "${name}"\nprotocol = "${name}"\n`)
    .join('');
  const page = `[page]\nurl = "https://${address}/"\nspki = "${spki}"\n`;
  writeFileSync(plan, `name = "live"\nseed = 1\nblocks = 1\n${page}${arms}`);
  const run = lab(['run', plan, '--out', out]);
  // 3: a busy machine makes loads invalid.
  assert.ok(run.status === 0 || run.status === 3, run.stderr);
  const samples = samplesOf(out);
  assert.equal(samples.length, 4);
  for (const sample of samples) {
    const { arm, outcome, browser, link, profile } = sample;
    assert.deepEqual(
      [outcome, faultsOf(sample), link, profile],
      ['completed', [], undefined, 'live'],
      arm,
    );
    const protocols = new Set(browser?.requests.map(({ protocol }) => protocol));
    assert.deepEqual([...protocols], [arm]);
  }
  assert.match(readFileSync(join(out, 'report.html'), 'utf8'), /over this machine&#39;s network/);
});
