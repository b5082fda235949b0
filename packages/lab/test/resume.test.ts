import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { readCampaign, writeCampaign, type Campaign } from '../src/campaign/campaign-file.js';
import { prepareResumption } from '../src/campaign/resume.js';
import { SAMPLES } from '../src/samples/samples-file.js';
import { environment, ownHash } from '../src/campaign/environment.js';
import { recordedFolder } from './recorded.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-resume-'));
after(() => {
  rmSync(folder, { recursive: true });
});
const before: Campaign = {
  ...readCampaign(recordedFolder),
  status: 'interrupted',
};
const withLab: Campaign = {
  ...before,
  environment: { ...before.environment, labSha256: 'a'.repeat(64) },
};

/** Resumes the campaign `was` under the current description `now`. */
async function resumed(was: Campaign, now: Campaign): Promise<Campaign> {
  writeCampaign(folder, was);
  writeFileSync(join(folder, SAMPLES), '');
  return (await prepareResumption(folder, now)).campaign;
}

test('campaign does not resume with another build of the lab, whatever its version', async () => {
  const other = { ...withLab, environment: { ...withLab.environment, labSha256: 'b'.repeat(64) } };
  await assert.rejects(
    resumed(withLab, other),
    /cannot be resumed: the lab \(sha256\) was a{16}, and is b{16}$/,
  );
  await assert.rejects(
    resumed(before, withLab),
    /cannot be resumed: the lab \(sha256\) was unknown, and is a{16}$/,
  );
  assert.equal((await resumed(withLab, withLab)).sittings.length, before.sittings.length + 1);
});

test('campaign does not resume with a changed arm, as when its partner is missing', async () => {
  const [first, ...rest] = withLab.arms;
  assert.ok(first);
  const other = { ...withLab, arms: [{ ...first, comparedWith: null }, ...rest] };
  await assert.rejects(
    resumed(withLab, other),
    new RegExp(`cannot be resumed: the arm ${first.name} has changed$`),
  );
  await assert.rejects(
    resumed(other, withLab),
    new RegExp(`cannot be resumed: the arm ${first.name} has changed$`),
  );
});

test('lab finds its own program files', () => {
  const program = join(folder, 'program');
  mkdirSync(join(program, 'inner'), { recursive: true });
  const files = [join(program, 'one.js'), join(program, 'inner/two.js')];
  for (const file of files) writeFileSync(file, '1');
  const before = ownHash(program);
  assert.equal(ownHash(program), before);
  for (const file of files) {
    writeFileSync(file, '2');
    assert.notEqual(ownHash(program), before);
    writeFileSync(file, '1');
  }
  assert.equal(ownHash(program), before);
  assert.equal(environment('130', { path: process.execPath, version: '1' }).labSha256, ownHash());
});
