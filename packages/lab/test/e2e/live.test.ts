import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { Sample } from '../../src/sample.js';
import { packageFolder } from '../places.js';
import { startServer } from './server.js';

const CLI = join(packageFolder, 'dist/cli.js');
const folder = mkdtempSync(join(tmpdir(), 'lab-live-'));
after(() => {
  rmSync(folder, { recursive: true });
});

test('page is loaded where it is, over each protocol, without a link', async (t) => {
  const site = join(folder, 'site');
  const made = spawnSync(process.execPath, [
    CLI,
    'page',
    join(packageFolder, 'test/fixtures/page.toml'),
    '--out',
    site,
  ]);
  assert.equal(made.status, 0, String(made.stderr));
  const { address, spki } = await startServer(t, 'serve', site, folder);
  const plan = join(folder, 'live.toml');
  const out = join(folder, 'out');
  const arms = ['h1', 'h2', 'h3'].map((name) => `[[arms]]\nname = "${name}"\nprotocol = "${name}"\n`).join('');
  const page = `[page]\nurl = "https://${address}/"\nspki = "${spki}"\n`;
  writeFileSync(plan, `name = "live"\nseed = 1\nblocks = 1\n${page}${arms}`);
  const run = spawnSync(process.execPath, [CLI, 'run', plan, '--out', out], { encoding: 'utf8', timeout: 120_000 });
  assert.equal(run.status, 0, run.stderr);
  const lines = readFileSync(join(out, 'samples.jsonl'), 'utf8').trim().split('\n');
  const samples = lines.map((line) => JSON.parse(line) as Sample);
  assert.equal(samples.length, 6);
  for (const { arm, outcome, invalidReasons, browser, link, profile } of samples) {
    assert.deepEqual([outcome, invalidReasons, link, profile], ['completed', [], undefined, 'live'], arm);
    const protocols = new Set(browser?.requests.map(({ protocol }) => protocol));
    assert.deepEqual([...protocols], [arm === 'h1' ? 'http/1.1' : arm]);
  }
  assert.match(readFileSync(join(out, 'report.html'), 'utf8'), /over this machine&#39;s network/);
});
