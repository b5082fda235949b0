import assert from 'node:assert/strict';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import test, { after } from 'node:test';
import type { ArmComparison } from '../src/compare/compare-campaign.js';
import { describeVerdict } from '../src/compare/comparison-text.js';
import { judge } from '../src/thresholds/judge.js';
import { parseThreshold } from '../src/thresholds/parse.js';
import { latePaintNotes, paintNotes } from '../src/report/paint-notes.js';
import { lookOf, Looks, LONG_LOOK_MS, SHORT_LOOK_MS } from '../src/samples/look.js';
import { markdownTable } from '../src/report/results-table.js';
import { comparisonsSection } from '../src/report/comparisons.js';
import { kiwee } from '../src/reproduce/studies/kiwee.js';
import { collectResults, comparedCell, type Results } from '../src/report/results.js';
import type { BrowserSide, Sample } from '../src/samples/sample.js';
import { FakeBench, LOADS, loadsIn, PLAN } from './fake-bench.js';
import { madeCampaign, madeSample } from './made-campaign.js';
import { recorded } from './recorded.js';

/** The observation time of loads, by which paints count alike in all arms of a page. */

const LOAD_EVENT_MS = 1_000;

/**
 * Returns a load whose largest paint came so long after its load event. With a longer observation
 * time it had later ones.
 */
function browserOf(paintMs: number, change: Partial<BrowserSide> = {}): BrowserSide {
  const { browser } = recorded('h3');
  assert.ok(browser.navigation);
  return {
    ...browser,
    navigation: { ...browser.navigation, loadEventStart: LOAD_EVENT_MS },
    largestContentfulPaintMs: LOAD_EVENT_MS + paintMs,
    lookMs: LONG_LOOK_MS,
    ...change,
  };
}

const rehearsal = (page: string, browser?: BrowserSide): Parameters<Looks['add']>[0] => ({
  ...{ block: 0, page },
  ...(browser && { browser }),
});
const looksAfter = (
  ...made: Parameters<Looks['add']>[0][]
): ((page: string, block?: number) => number) => {
  const looks = new Looks();
  for (const each of made) looks.add(each);
  return (page, block = 1) => looks.lookMs({ page, block });
};

test('late paint in any rehearsal of a page lengthens the observation of all its measured loads', () => {
  const after = looksAfter(
    rehearsal('late', browserOf(40)),
    rehearsal('late', browserOf(251)),
    rehearsal('late', browserOf(30)),
    rehearsal('soon', browserOf(250)),
    rehearsal('never'),
  );
  assert.deepEqual(
    ['late', 'soon', 'never'].map((page) => after(page)),
    [LONG_LOOK_MS, SHORT_LOOK_MS, SHORT_LOOK_MS],
  );
  // Rehearsals always have the long observation time, whatever other rehearsals have shown.
  assert.deepEqual([after('late', 0), after('soon', 0)], [LONG_LOOK_MS, LONG_LOOK_MS]);
  // It came after the long observation time too: other arms may have it sooner.
  assert.equal(
    looksAfter(rehearsal('page', browserOf(40, { latePaintsMs: [9_000] })))('page'),
    LONG_LOOK_MS,
  );
});

test("loads that say nothing about the page's late paints do not affect the observation time", () => {
  const { navigation } = browserOf(0);
  assert.ok(navigation);
  const saying: [string, Parameters<Looks['add']>[0]][] = [
    ['a measured load', { block: 1, page: 'page', browser: browserOf(900) }],
    [
      'no load event',
      rehearsal('page', browserOf(900, { navigation: { ...navigation, loadEventStart: 0 } })),
    ],
    ['an error page', rehearsal('page', browserOf(900, { documentFault: 'status 500' }))],
    [
      'a rehearsal with the short look',
      rehearsal('page', browserOf(400, { lookMs: SHORT_LOOK_MS })),
    ],
  ];
  for (const [what, made] of saying) assert.equal(looksAfter(made)('page'), SHORT_LOOK_MS, what);
  const { lookMs, ...earlier } = browserOf(400);
  assert.equal(lookMs, LONG_LOOK_MS);
  assert.equal(lookOf(earlier as BrowserSide), SHORT_LOOK_MS);
  assert.equal(looksAfter(rehearsal('page', earlier))('page'), SHORT_LOOK_MS);
});

/**
 * Each load writes its job's observation time where the test finds it, and has the browser's side
 * $SIDE. It hangs from $HANG on.
 */
const bench = new FakeBench(
  '[ "$n" = 0 ] && exit 0\nfor each in "$@"; do case "$each" in */job.json) job=$each ;; esac; done\n' +
    'grep -o \'"lookMs":[0-9]*\' "$job" > "$LOOKS-$n"\n[ "$n" = "$HANG" ] && exec sleep 600\n' +
    'cp "$SIDE" "$(dirname "$job")/browser.json"\nexit 69',
);
after(() => {
  rmSync(bench.folder, { recursive: true });
});

for (const [paintMs, measured] of [
  [300, LONG_LOOK_MS],
  [200, SHORT_LOOK_MS],
] as const) {
  test(`campaign whose rehearsals paint until ${paintMs} ms observes measured loads for ${measured} ms, also when resumed`, async () => {
    const [side, looks, out] = ['side', 'looks', 'out'].map((name) =>
      bench.path(`${name}-${paintMs}`),
    ) as [string, string, string];
    writeFileSync(side, JSON.stringify(browserOf(paintMs)));
    const env = { SIDE: side, LOOKS: looks };
    const first = bench.start(['run', PLAN, '--out', out], { ...env, HANG: '5' });
    await first.says(/^\[4\//m);
    first.child.kill('SIGINT');
    await first.ended;
    assert.deepEqual(loadsIn(out), [1, 2, 3, 4]);
    assert.equal(bench.run(['run', PLAN, '--out', out, '--resume'], env).status, 3);
    const seen = Array.from({ length: LOADS }, (_, at) =>
      readFileSync(`${looks}-${at + 1}`, 'utf8').trim(),
    );
    const [long, other] = [LONG_LOOK_MS, measured].map((ms) => `"lookMs":${ms}`);
    assert.deepEqual(seen, [long, long, long, other, other, other]);
  });
}

/**
 * Returns results of ten blocks of two arms, with so many loads each that have a paint too late to
 * count.
 */
async function resultsOf(
  lookMs: number | undefined,
  late: Readonly<Record<string, number>>,
): Promise<Results> {
  const arm = { congestion: 'cubic', visit: 'first', server: 'pronghorn' } as const;
  const campaign = madeCampaign(kiwee, {
    arms: [
      { ...arm, name: 'h2', protocol: 'h2' },
      { ...arm, name: 'h3', protocol: 'h3' },
    ],
    baseline: 'h2',
    profiles: [{ name: 'lte', sha256: '', text: '' }],
    pages: ['shop', 'news'].map((name) => ({ name, requests: 1 })),
  });
  async function* samples(): AsyncGenerator<Sample> {
    let number = 0;
    for (let block = 1; block <= 10; block++) {
      for (const page of ['shop', 'news']) {
        for (const name of ['h2', 'h3']) {
          const made = madeSample(
            { profile: 'lte', page, arm: name, block, seconds: 1 + block / 100 },
            (number += 1),
          );
          const isLate = page === 'shop' && block <= (late[name] ?? 0);
          const browser: BrowserSide = {
            ...browserOf(100),
            lookMs: page === 'shop' && lookMs !== undefined ? lookMs : SHORT_LOOK_MS,
            ...(isLate && { latePaintsMs: [LOAD_EVENT_MS + 9_000] }),
          };
          yield await Promise.resolve({
            ...made,
            browser,
            times: { ...made.times, largestContentfulPaint: 1 },
          });
        }
      }
    }
  }
  return collectResults(campaign, samples());
}

test('table lists until when the paints of a page count where that is long, and later paints', async () => {
  assert.deepEqual(paintNotes(await resultsOf(SHORT_LOOK_MS, {})), []);
  assert.deepEqual(paintNotes(await resultsOf(LONG_LOOK_MS, {})), [
    'Paints of page shop count until 2000 ms after the start of the load event, in all arms: in a rehearsal a larger paint came late.',
  ]);
  const [, late] = paintNotes(await resultsOf(LONG_LOOK_MS, { h2: 1 }));
  assert.match(
    late ?? '',
    /^In 1 load of page shop a larger paint came more than 2000 ms after the start of the load event/,
  );
  const [short] = paintNotes(await resultsOf(undefined, { h2: 3, h3: 1 }));
  assert.match(
    short ?? '',
    /^In 4 loads of page shop a larger paint came more than 500 ms after the start of the load event/,
  );
});

test('comparison of largest paints lists how many loads of each arm had paints too late to count', async () => {
  assert.deepEqual(latePaintNotes(await resultsOf(LONG_LOOK_MS, {})), []);
  const results = await resultsOf(LONG_LOOK_MS, { h2: 3 });
  const [note = '', ...others] = latePaintNotes(results);
  assert.match(
    note,
    /^Largest paint on lte\/shop: in 3 of 10 loads of h2, 0 of 10 loads of h3 a larger paint came more than 2000 ms after /,
  );
  assert.deepEqual(others, []);
  // No verdict is given and no test made, so the others have one comparison less.
  const of = (place: string): ArmComparison | undefined =>
    results.comparisons.comparisons.find(({ metric, page }) => metric === 'lcp' && page === place);
  assert.deepEqual(
    [of('shop')?.verdict, of('shop')?.holmP],
    [{ kind: 'late-paints', arm: 0, base: 3 }, undefined],
  );
  assert.match(
    describeVerdict(of('shop') as ArmComparison),
    /^no verdict: larger paints came too late to count \(h3 0 of 10, h2 3 of 10\)$/,
  );
  assert.notEqual(of('news')?.holmP, undefined);
  const cells = results.cells.map(comparedCell);
  const [broken] = judge(
    parseThreshold('h3.lcp.median > h2.lcp.median'),
    cells.filter(({ page }) => page === 'shop'),
    1,
  );
  assert.match(broken?.line ?? '', /: larger paints came too late to count in 3 loads of h2$/);
  assert.deepEqual(
    judge(
      parseThreshold('h3.lcp.median > h2.lcp.median'),
      cells.filter(({ page }) => page === 'news'),
      1,
    ),
    [],
  );
  assert.ok(markdownTable(madeCampaign(kiwee), results).includes(note));
  const section = comparisonsSection(results.comparisons, () => '#000', latePaintNotes(results));
  assert.ok(section?.markup.includes('Largest paint on lte/shop: in 3 of 10 loads of h2'));
  // Without a comparison there is nothing to warn about.
  assert.deepEqual(
    latePaintNotes({ ...results, comparisons: { ...results.comparisons, comparisons: [] } }),
    [],
  );
});
