import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { comparisonNotes } from '../src/compare/comparison-text.js';
import { latenessFault, type LinkLateness } from '../src/campaign/lateness.js';
import { kiwee } from '../src/reproduce/studies/kiwee.js';
import { collectResults } from '../src/report/results.js';
import type { Sample } from '../src/samples/sample.js';
import { appendSample, readSamples } from '../src/samples/samples-file.js';
import type { WarmUp } from '../src/run/warm-up.js';
import { madeCampaign, madeSample } from './made-campaign.js';
import { recorded } from './recorded.js';

const lateness = (packets: number, late: number): LinkLateness => ({
  kept_deadlines: late <= Math.max(1, packets / 100),
  lateness_us: { packets, late, p50: 60, p99: 300, max: 9000 },
  lateness_bound_us: 500,
});

test('link is late if more than 1 % of the packets of a round are late, whichever loads they belong to', () => {
  assert.equal(latenessFault([lateness(1000, 20), lateness(1000, 0)]), undefined);
  assert.equal(
    latenessFault([lateness(1000, 21), lateness(1000, 0)]),
    "the link missed its deadlines: 21 of the 2000 packets in this block's loads were more than 0.50 ms late",
  );
  // In either arm.
  assert.notEqual(latenessFault([lateness(1000, 0), lateness(1000, 21)]), undefined);
});

test('one late packet is not too many, however few packets there are', () => {
  assert.equal(latenessFault([lateness(40, 1), lateness(30, 0)]), undefined);
  assert.notEqual(latenessFault([lateness(40, 1), lateness(30, 1)]), undefined);
  for (const packets of [99, 100, 101, 199])
    assert.equal(latenessFault([lateness(packets, 1)]), undefined);
  assert.equal(latenessFault([]), undefined);
});

test('late load makes a round of many arms late', () => {
  const others = Array.from({ length: 9 }, () => lateness(1000, 0));
  assert.equal(latenessFault([...others, lateness(1000, 50)]), undefined);
  assert.equal(
    latenessFault([...others, lateness(1000, 60)]),
    "the link missed its deadlines: 60 of the 10000 packets in this block's loads, and 60 of the 1000 of one load were more than 0.50 ms late",
  );
});

test("report from before late packets were counted uses the link's own verdict", () => {
  const [before, kept] = [false, true].map((kept_deadlines) => ({
    kept_deadlines,
    lateness_us: { p50: 60, p99: 300, max: 900 },
  })) as [LinkLateness, LinkLateness];
  assert.equal(
    latenessFault([before, kept]),
    'the link missed its deadlines in a load of this block',
  );
  assert.equal(latenessFault([kept, kept]), undefined);
});

async function judged(samples: readonly Sample[]): Promise<Sample[]> {
  const folder = mkdtempSync(join(tmpdir(), 'lab-rounds-'));
  try {
    const path = join(folder, 'samples.jsonl');
    writeFileSync(path, '');
    for (const sample of samples) appendSample(path, sample);
    const read: Sample[] = [];
    for await (const sample of readSamples(path)) read.push(sample);
    return read;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const made = (arm: 'h2' | 'h3', block: number, seconds: number): Sample => ({
  ...madeSample(
    { profile: 'lte', page: 'page', arm, block, seconds },
    2 * block + (arm === 'h3' ? 1 : 0),
  ),
  protocol: arm,
});

test('late link makes the loads of all arms of a round invalid, and the report shows how they would have changed it', async () => {
  const link = (packets: number, late: number): NonNullable<Sample['link']> => ({
    ...recorded('h2').link,
    ...lateness(packets, late),
  });
  // Planted: over HTTP/3 the link is late when the load is slow.
  const samples = await judged(
    Array.from({ length: 24 }, (_, at) => at + 1).flatMap((block) => {
      const isSlow = block % 3 === 0;
      return [
        { ...made('h2', block, 1 + block / 1000), link: link(600, 2) },
        {
          ...made('h3', block, (isSlow ? 1.5 : 0.9) + block / 1000),
          link: link(800, isSlow ? 40 : 1),
        },
      ];
    }),
  );
  for (const { block, valid, isRoundOnly } of samples) {
    assert.deepEqual([valid, isRoundOnly], block % 3 === 0 ? [false, true] : [true, undefined]);
  }
  const h2 = {
    name: 'h2',
    protocol: 'h2',
    congestion: 'cubic',
    visit: 'first',
    server: 'x',
  } as const;
  const campaign = madeCampaign(kiwee, {
    arms: [h2, { ...h2, name: 'h3', protocol: 'h3' }],
    baseline: 'h2',
    profiles: [{ name: 'lte', sha256: '', text: '' }],
    pages: [{ name: 'page', requests: 1 }],
  });
  async function* all(): AsyncGenerator<Sample> {
    yield* await Promise.resolve(samples);
  }
  const { comparisons } = await collectResults(campaign, all());
  const load = comparisons.comparisons.find(({ metric }) => metric === 'load');
  assert.deepEqual([load?.blocks, load?.withAllRounds?.blocks], [16, 24]);
  const notes = comparisonNotes(comparisons);
  const at = notes.findIndex((note) =>
    note.startsWith('Blocks in which the machine was starved or the link late are excluded.'),
  );
  assert.match(
    notes[at + 1] ?? '',
    /^lte: h3 \/ h2 0\.90\d .* over 24, instead of 0\.901 .* over 16\.$/,
  );
});

test('loads before which a server did not answer are invalid whatever their outcome, if it ever answers', async () => {
  const warmUps = (h3: boolean): WarmUp[] => [
    { protocol: 'h2', ok: true },
    { protocol: 'h3', ok: h3 },
  ];
  const failed = (sample: Sample): Sample => ({ ...sample, outcome: 'failed', times: {} });
  const campaign = (everAnswers: boolean): Sample[] => [
    { ...made('h3', 1, 1), warmUps: warmUps(false) },
    { ...failed(made('h3', 2, 1)), warmUps: warmUps(false) },
    { ...made('h3', 3, 1), warmUps: warmUps(everAnswers) },
  ];
  const cold = 'the server was cold: it did not answer before the load over h3';
  const reasons = (samples: readonly Sample[]): (readonly string[])[] =>
    samples.map((each) => each.invalidReasons);
  assert.deepEqual(reasons(await judged(campaign(true))), [[cold], [cold], []]);
  // A server that never answers over a protocol may not support it: that is an outcome.
  assert.deepEqual(reasons(await judged(campaign(false))), [[], [], []]);
  // The browser received a response over it.
  const answered = {
    ...made('h3', 4, 1),
    warmUps: warmUps(false),
    browser: recorded('h3').browser,
  };
  assert.deepEqual(reasons(await judged([...campaign(false), answered])), [
    [cold],
    [cold],
    [cold],
    [cold],
  ]);
  // A load over the other protocol does not use the cold one.
  const other = { ...made('h2', 4, 1), warmUps: warmUps(false) };
  assert.deepEqual(reasons(await judged([...campaign(true), other])).at(-1), []);
  // Nothing ever warms the server: its loads are all alike.
  const never = [answered, failed(made('h3', 5, 1))].map((each) => ({
    ...each,
    warmUps: warmUps(false).slice(1),
  }));
  assert.deepEqual(reasons(await judged(never)), [[], []]);
});
