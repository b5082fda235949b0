import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { readCampaign } from '../src/campaign/campaign-file.js';
import { packageFolder } from './places.js';

const repository = join(packageFolder, '../..');
const results = join(repository, 'docs/results');

/**
 * Campaigns begun earlier used a method with flaws that distorted verdicts; docs/results/README.md
 * lists them.
 */
const FIXED = '2026-11-26T00:00:00Z';
const NOTE = /superseded until it is measured again/i;

/** Published campaigns; they are not part of the package. */
const campaigns = existsSync(results)
  ? readdirSync(results).filter((name) => existsSync(join(results, name, 'campaign.json')))
  : [];
const isSuperseded = (name: string): boolean =>
  (readCampaign(join(results, name)).sittings[0]?.startedAt ?? '') < FIXED;

for (const name of campaigns) {
  test(`published results of ${name} say at the top whether they are superseded`, () => {
    const texts = readdirSync(join(results, name)).filter((file) => /\.(md|html)$/.test(file));
    assert.ok(texts.includes('table.md'), texts.join());
    for (const file of texts) {
      const text = readFileSync(join(results, name, file), 'utf8');
      // In a report, the part that a reader sees first, after style and pictures.
      const top = text
        .slice(Math.max(0, text.indexOf('<main>')))
        .split('\n')
        .slice(0, 4)
        .join('\n');
      assert.equal(NOTE.test(top), isSuperseded(name), `${name}/${file}`);
    }
  });
}

test(
  'conclusions that rest on superseded campaigns say so first',
  { skip: campaigns.length === 0 },
  () => {
    const some = campaigns.some(isSuperseded);
    const [title, , note] = readFileSync(join(results, 'README.md'), 'utf8').split('\n');
    assert.match(title ?? '', /^# /);
    assert.equal(note?.startsWith('> **Superseded: do not decide by these figures.**'), some);
    const readme = readFileSync(join(repository, 'README.md'), 'utf8');
    const [sentence = ''] = /^\[docs\/results\]\(.*$/m.exec(readme) ?? [];
    assert.equal(NOTE.test(sentence), some);
  },
);
