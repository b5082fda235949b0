import assert from 'node:assert/strict';
import test from 'node:test';
import { inWords, Progress, describeResult } from '../src/campaign/progress.js';
import type { Sample } from '../src/samples/sample.js';
import { schedule } from '../src/campaign/schedule.js';
import { recorded, type Mutable } from './recorded.js';

const scheduled = schedule(
  {
    arms: [
      { name: 'h3', protocol: 'h3', congestion: 'cubic', visit: 'first', server: 'pronghorn' },
    ],
    profiles: ['fast', 'slow'].map((name) => ({ name, path: '', text: '' })),
    pages: [{ kind: 'spec', name: 'page', path: '' }],
  },
  2,
  1,
).flat();
/** Without the rehearsal, the fast profile first, renumbered. */
const loads = scheduled
  .filter(({ block }) => block > 0)
  .sort((a, b) => a.block - b.block || a.profile.name.localeCompare(b.profile.name))
  .map((load, index) => ({ ...load, number: index + 1 }));

function sampleOf(wallSeconds: number): Mutable<Sample> {
  return Object.assign(structuredClone(recorded('h3')) as Mutable<Sample>, {
    wallSeconds,
    times: { load: 1.5 },
  });
}

/** Returns the progress output of `use`. */
function written(isTTY: boolean, use: (progress: Progress) => void): string {
  let text = '';
  use(new Progress(loads, { write: (part: string) => (text += part), isTTY }));
  return text;
}

const both = (progress: Progress): void => {
  loads.slice(0, 2).forEach((load, at) => {
    progress.started(load);
    progress.finished(load, sampleOf(at === 0 ? 10 : 50));
  });
};

test('each load is one line with the remaining time, estimated from its own profile, page and arm', () => {
  assert.deepEqual(written(false, both).split('\n'), [
    '[1/4] fast block 1 h3: 1.500 s, valid; 3 to go, about 30 s',
    '[2/4] slow block 1 h3: 1.500 s, valid; 2 to go, about 60 s',
    '',
  ]);
});

test('terminal shows the running load and then replaces it with its result line', () => {
  const text = written(true, both);
  assert.ok(text.startsWith('[1/4] fast block 1 h3: …\r\u001b[K[1/4] fast block 1 h3: 1.500 s'));
});

test('last load leaves nothing to estimate, and skipped loads are not counted', () => {
  const last = loads.at(-1);
  assert.ok(last);
  const text = written(false, (progress) => {
    loads.slice(0, -1).forEach((load) => {
      progress.passed(load);
    });
    progress.finished(last, sampleOf(1));
  });
  assert.equal(text, '[4/4] slow block 2 h3: 1.500 s, valid\n');
});

test('result without a time says how the load ended, and an invalid one says why', () => {
  const sample = Object.assign(sampleOf(1), {
    outcome: 'timeout',
    reason: 'no load event in 30 s',
    times: {},
  });
  assert.equal(describeResult(sample), 'timeout (no load event in 30 s), valid');
  Object.assign(sample, { valid: false, invalidReasons: ['a', 'b'] });
  assert.equal(describeResult(sample), 'timeout (no load event in 30 s), INVALID: a; b');
});

test('durations are rounded', () => {
  assert.deepEqual([0.2, 40, 89, 200, 4800].map(inWords), [
    '1 s',
    '40 s',
    '89 s',
    '3 min',
    '1 h 20 min',
  ]);
});

test('rehearsal is labelled as such', () => {
  const rehearsal = scheduled[0];
  assert.ok(rehearsal);
  const text = written(true, (progress) => {
    progress.started(rehearsal);
  });
  assert.match(text, /(fast|slow) rehearsal h3: …$/);
});
