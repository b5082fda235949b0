import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { parse } from 'node-html-parser';
import { writeCampaign } from '../src/campaign/campaign-file.js';
import { LabError } from '../src/io/errors.js';
import { readPlan } from '../src/campaign/read-plan.js';
import {
  CRITERIA,
  readCriteria,
  requireSameCriteria,
  writeCriteria,
} from '../src/reproduce/criteria-file.js';
import type { Criterion, Study, Term } from '../src/reproduce/criterion.js';
import {
  articlePercentile,
  evaluate,
  Loads,
  metricOf,
  verdictOf,
} from '../src/reproduce/evaluate.js';
import { reproductionSection } from '../src/reproduce/reproduction-section.js';
import { describeSummary } from '../src/reproduce/reproduction-text.js';
import { STUDIES } from '../src/reproduce/studies/all.js';
import { readReproduction, writeReproduction } from '../src/reproduce/write-reproduction.js';
import { madeCampaign, madeSample, type MadeLoad } from './made-campaign.js';
import { packageFolder } from './places.js';
import { recorded } from './recorded.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-reproduce-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

const { kiwee, cloudflare, tencent } = STUDIES as Record<'kiwee' | 'cloudflare' | 'tencent', Study>;

/** The article's table, typed independently of the study. */
const KIWEE_TABLE = `
Nuremberg | h3 | 0.6350 | 0.6472 | 0.7550 | 0.8750 | 0.4820 | 1.2630
Nuremberg | h2 | 0.5490 | 0.8623 | 1.7660 | 2.0610 | 0.4200 | 2.1990
Helsinki | h3 | 0.6465 | 0.6702 | 0.8040 | 0.9090 | 0.5360 | 0.9210
Helsinki | h2 | 0.6950 | 0.9317 | 1.7960 | 2.5000 | 0.5550 | 2.8420
Virginia | h3 | 1.2800 | 1.3491 | 1.5220 | 1.9210 | 1.1430 | 2.1730
Virginia | h2 | 1.6740 | 1.7942 | 2.1910 | 2.9370 | 1.2840 | 4.8710
fibre | h3 | 0.8390 | 0.8856 | 1.0130 | 1.0140 | 0.7530 | 1.4280
fibre | h2 | 0.8155 | 1.0117 | 1.3150 | 1.3230 | 0.7270 | 2.9040
LTE | h3 | 1.6020 | 1.7172 | 1.8740 | 2.5690 | 1.2350 | 2.7230
LTE | h2 | 1.2035 | 1.3895 | 1.5470 | 1.8190 | 0.8960 | 3.4310
LTE +100 ms, ~15 % loss | h3 | 6.0280 | 6.6856 | 9.3170 | 9.3490 | 4.0230 | 9.7740
LTE +100 ms, ~15 % loss | h2 | 8.9400 | 12.8554 | 27.6380 | 28.4410 | 5.9210 | 36.7130
`;

test("kiwee's published table equals the article's", () => {
  const expected = KIWEE_TABLE.trim().split('\n');
  const rows = kiwee.published.map(
    ({ place, variant, figures: { median, mean, p90, p99, min, max } }) =>
      [
        place,
        variant,
        ...[median, mean, p90, p99, min, max].map((value) => value?.toFixed(4)),
      ].join(' | '),
  );
  // The bad link is listed twice, once for each possible direction of its loss.
  assert.deepEqual([...new Set(rows)], expected);
  assert.equal(rows.length, expected.length + 2);
});

test("the other studies' published figures equal the articles'", () => {
  const means = Object.fromEntries(
    cloudflare.published.map((row) => [`${row.place}, ${row.variant}`, row.figures.mean]),
  );
  assert.deepEqual(means, {
    '15 KB page, HTTP/3': 0.443,
    '15 KB page, HTTP/2': 0.458,
    '1 MB page, HTTP/3': 2.33,
    '1 MB page, HTTP/2': 2.3,
    'first byte, HTTP/3': 0.176,
    'first byte, HTTP/2': 0.201,
  });
  const shares = Object.fromEntries(tencent.criteria.map(({ id, published }) => [id, published]));
  const faster = (page: string): (number | undefined)[] =>
    ['http', 'h2', 'h1'].map((arm) => shares[`${page}-${arm}`]);
  assert.deepEqual(faster('tencent-12'), [0.91, 0.58, 0.48]);
  assert.deepEqual(faster('tencent-many'), [0.64, 0.53, 0.36]);
  assert.deepEqual([shares['release-firstByte'], shares['release-load']], [0.75, 0.78]);
});

test('published effects follow from the published figures', () => {
  const of = (study: Study, id: string): number | undefined =>
    study.criteria.find((each) => each.id === id)?.published;
  assert.equal(of(kiwee, 'far-median'), 0.765);
  assert.equal(of(kiwee, 'lte-median'), 1.331);
  assert.equal(of(kiwee, 'lte-bad-mean'), 0.52);
  assert.equal(of(kiwee, 'lte-bad-uplink-tail'), 0.5);
  assert.equal(of(cloudflare, 'cable-crossover'), 1.047);
  assert.equal(of(cloudflare, 'lte-loss-first-byte-0rtt'), 0.876);
  assert.equal(of(cloudflare, 'cable-1m-cubic'), undefined);
});

for (const study of Object.values(STUDIES)) {
  test(`the plan of ${study.name} has each cell that its criteria and its table need`, () => {
    const plan = readPlan(join(packageFolder, 'plans', `reproduce-${study.name}.toml`));
    const has = (list: readonly { name: string }[], name: string): boolean =>
      list.some((each) => each.name === name);
    const terms = study.criteria.flatMap(({ effect }) =>
      effect.kind === 'ratio' ? [...effect.over, ...effect.under] : [effect.of, effect.less],
    );
    for (const { profile, page, arm } of [...terms, ...study.published]) {
      assert.ok(
        has(plan.profiles, profile) && has(plan.pages, page) && has(plan.arms, arm),
        `${profile} ${page} ${arm}`,
      );
    }
    // Everything measured is used: no profile, page or arm is superfluous except the control.
    for (const [list, key] of [
      [plan.profiles, 'profile'],
      [plan.pages, 'page'],
      [plan.arms.filter(({ repeats }) => repeats === undefined), 'arm'],
    ] as const) {
      for (const { name } of list)
        assert.ok(
          terms.some((term) => term[key] === name),
          `${key} ${name}`,
        );
    }
    assert.equal(plan.blocks.max, 50);
    assert.ok(plan.arms.some(({ repeats }) => repeats !== undefined));
    const ids = study.criteria.map(({ id }) => id);
    assert.deepEqual([...new Set(ids)], ids);
  });
}

const cell = (arm: string, figure: Term['figure'] = 'median'): Term => ({
  profile: 'dc-far',
  page: 'kiwee-like',
  arm,
  metric: 'lastByte',
  figure,
});

function criterionOf(claim: Criterion['claim'], effect?: Criterion['effect']): Criterion {
  return {
    id: 'made',
    statement: 'h3 is so much of h2',
    effect: effect ?? { kind: 'ratio', over: [cell('h3')], under: [cell('h2')] },
    ...(claim && { claim }),
    published: 0.765,
    expected: { verdict: 'reproduced', because: 'a reason' },
    otherwise: 'another reason',
  };
}

function studyOf(...criteria: Criterion[]): Study {
  const published = kiwee.published.filter(({ profile }) => profile === 'dc-far');
  return { ...kiwee, published, criteria };
}

/**
 * Returns blocks of loads over one link: HTTP/2 takes slightly more than a second, HTTP/3 `ratio`
 * of it, each with independent noise.
 */
function loadsOf(blocks: number, ratio: number, noise: number): MadeLoad[] {
  return Array.from({ length: blocks }, (_, at) => {
    const block = at + 1;
    const place = { profile: 'dc-far', page: 'kiwee-like', block };
    const wave = (phase: number): number => 1 + noise * Math.sin(phase + 2.4 * block);
    return [
      { ...place, arm: 'h2', seconds: wave(0) },
      { ...place, arm: 'h3', seconds: ratio * wave(1.3) },
    ];
  }).flat();
}

function judge(study: Study, made: readonly MadeLoad[]): ReturnType<typeof evaluate> {
  const loads = new Loads();
  made.forEach((load, at) => {
    loads.add(madeSample(load, at + 1));
  });
  return evaluate(study, madeCampaign(study), loads);
}

test('each verdict is reached by matching loads', () => {
  const claim = { low: 0.6, high: 0.9 };
  const verdictFor = (ratio: number, noise: number, blocks = 30): string | undefined =>
    judge(studyOf(criterionOf(claim)), loadsOf(blocks, ratio, noise)).criteria[0]?.verdict;
  assert.equal(verdictFor(0.75, 0.02), 'reproduced');
  assert.equal(verdictFor(0.97, 0.02), 'not reproduced');
  assert.equal(verdictFor(0.5, 0.02), 'not reproduced');
  assert.equal(verdictFor(0.9, 0.2), 'undecided');
  // Too few blocks for an interval, however clear they look.
  assert.equal(verdictFor(0.75, 0.02, 5), 'undecided');
  assert.equal(judge(studyOf(criterionOf(claim)), []).criteria[0]?.verdict, 'undecided');
  assert.equal(
    judge(studyOf(criterionOf(undefined)), loadsOf(30, 2, 0.01)).criteria[0]?.verdict,
    'reported',
  );
});

test('criteria for links that a campaign leaves out are counted and not judged', () => {
  const claim = { high: 0.9 };
  const elsewhere: Criterion['effect'] = {
    kind: 'ratio',
    over: [{ ...cell('h3'), profile: 'lte' }],
    under: [{ ...cell('h2'), profile: 'lte' }],
  };
  const study = studyOf(criterionOf(claim), { ...criterionOf(claim, elsewhere), id: 'elsewhere' });
  const loads = new Loads();
  loadsOf(30, 0.75, 0.02).forEach((load, at) => {
    loads.add(madeSample(load, at + 1));
  });
  const whole = madeCampaign(study);
  const [profile] = whole.profiles;
  assert.ok(profile);
  const reproduction = evaluate(
    { ...study, published: kiwee.published },
    { ...whole, profiles: [{ ...profile, name: 'dc-far' }] },
    loads,
  );
  assert.deepEqual(
    [reproduction.criteria.map(({ verdict }) => verdict), reproduction.leftOut],
    [['reproduced'], 1],
  );
  assert.ok(reproduction.rows.every(({ row }) => row.profile === 'dc-far'));
  assert.match(describeSummary(reproduction), /of 1 criteria 1 reproduced\. 1 more are of links/);
});

test('the bounds of a claim are inclusive, and an open bound is unlimited', () => {
  const interval = { low: 0.9, high: 1, method: 'bca' } as const;
  assert.equal(verdictOf({ high: 1 }, interval), 'reproduced');
  assert.equal(verdictOf({ low: 0.9 }, interval), 'reproduced');
  assert.equal(verdictOf({ low: 1.01 }, interval), 'not reproduced');
  assert.equal(verdictOf({ high: 0.95 }, interval), 'undecided');
  assert.equal(verdictOf({ low: 2 }, { ...interval, high: Infinity }), 'undecided');
  assert.equal(verdictOf({ low: 0.5 }, { ...interval, high: Infinity }), 'reproduced');
});

test('loads that did not complete rank slowest', () => {
  const made = loadsOf(30, 0.75, 0.02).map((load) => {
    return load.arm === 'h3' && load.block % 2 === 0 ? { ...load, seconds: undefined } : load;
  });
  const [more] = judge(studyOf(criterionOf({ high: 0.9 })), [
    ...made,
    { ...(made[1] as MadeLoad), block: 31, seconds: undefined },
    { ...(made[0] as MadeLoad), block: 31 },
  ]).criteria;
  assert.equal(more?.effect?.value, Infinity);
  assert.equal(more.blocks, 31);
  assert.notEqual(more.verdict, 'reproduced');
  const [row] = judge(studyOf(criterionOf({ high: 0.9 })), made).rows;
  assert.equal(row?.figures?.p90, Infinity);
  assert.deepEqual([row.valid, row.completed], [30, 15]);
});

test('a block with an invalid load is excluded from the effect, and counted', () => {
  const made = loadsOf(10, 0.75, 0.02).map((load) =>
    load.block === 3 && load.arm === 'h2' ? { ...load, valid: false } : load,
  );
  const { criteria, rows } = judge(studyOf(criterionOf({ high: 0.9 })), made);
  assert.equal(criteria[0]?.blocks, 9);
  assert.deepEqual(
    rows.map(({ row, valid, invalid }) => [row.variant, valid, invalid]),
    [
      ['h3', 10, 0],
      ['h2', 9, 1],
    ],
  );
});

test('a ratio of ratios and a difference in round trips are computed as defined', () => {
  const tail = criterionOf(undefined, {
    kind: 'ratio',
    over: [cell('h3', 'p90'), cell('h2')],
    under: [cell('h2', 'p90'), cell('h3')],
  });
  const trips = criterionOf(
    { low: 0.5, high: 1.5 },
    {
      kind: 'difference',
      of: cell('h2'),
      less: cell('h3'),
      unit: 'round trips',
      unitSeconds: 0.25,
    },
  );
  const made = Array.from({ length: 20 }, (_, at): MadeLoad[] => {
    const place = { profile: 'dc-far', page: 'kiwee-like', block: at + 1 };
    const slow = at >= 16;
    return [
      { ...place, arm: 'h2', seconds: slow ? 8 : 1 },
      { ...place, arm: 'h3', seconds: slow ? 3 : 0.75 },
    ];
  }).flat();
  const [one, other] = judge(studyOf(tail, { ...trips, id: 'trips' }), made).criteria;
  assert.equal(one?.effect?.value, 3 / 8 / 0.75);
  assert.equal(other?.effect?.value, 1);
  assert.equal(other.verdict, 'reproduced');
});

test('arms that were loaded twice judge the bench', () => {
  const study = studyOf(criterionOf({ high: 0.9 }));
  const again = (factor: number): MadeLoad[] =>
    loadsOf(30, factor, 0.02).map((load) =>
      load.arm === 'h3' ? { ...load, arm: 'h2-again' } : load,
    );
  const controlled = (made: readonly MadeLoad[]): ReturnType<typeof evaluate>['control'] => {
    const loads = new Loads();
    made.forEach((load, at) => {
      loads.add(madeSample(load, at + 1));
    });
    const base = madeCampaign(study);
    const [arm] = base.arms as [(typeof base.arms)[number]];
    const arms = [
      { ...arm, name: 'h2' },
      { ...arm, name: 'h2-again', repeats: 'h2' },
    ];
    return evaluate(study, { ...base, arms }, loads).control;
  };
  assert.equal(controlled(again(1)).verdict, 'good');
  assert.deepEqual([controlled(again(1.5)).intervals, controlled(again(1.5)).excluding], [1, 1]);
});

test("percentiles are computed as in the article's notebook", () => {
  const fifty = Array.from({ length: 50 }, (_, at) => at + 1);
  assert.equal(articlePercentile(fifty, 90), 45);
  assert.equal(articlePercentile(fifty, 99), 49);
  assert.equal(articlePercentile([3], 99), 3);
});

test("the start of a request is relative to the document's", () => {
  const sample = recorded('h3');
  assert.equal(
    metricOf(sample, 'requestStart'),
    (sample.browser.navigation?.requestStart ?? 0) / 1000,
  );
  assert.equal(
    metricOf(
      { ...sample, browser: { ...sample.browser, navigation: undefined } as never },
      'requestStart',
    ),
    undefined,
  );
});

/** Creates a campaign's folder as it is after so many blocks. */
function madeFolder(
  name: string,
  study: Study,
  made: readonly MadeLoad[],
  status: 'finished' | 'interrupted',
): string {
  const out = mkdtempSync(join(folder, name));
  writeCriteria(out, study);
  writeCampaign(out, madeCampaign(study, { status }));
  const startedAt = new Date(Date.now() + 1000).toISOString();
  const lines = made.map((load, at) => JSON.stringify({ ...madeSample(load, at + 1), startedAt }));
  writeFileSync(join(out, 'samples.jsonl'), `${lines.join('\n')}\n`);
  return out;
}

const twoCriteria = studyOf(criterionOf({ low: 0.6, high: 0.9 }), {
  ...criterionOf({ low: 1 }),
  id: 'wrong',
  statement: 'h3 is behind',
  otherwise: 'nginx of 2023',
});

test('the text shows published and measured values, verdicts and reasons', async () => {
  const out = madeFolder('text-', twoCriteria, loadsOf(30, 0.75, 0.02), 'finished');
  const text = await writeReproduction(out);
  assert.equal(readFileSync(join(out, 'reproduction.md'), 'utf8'), text);
  assert.match(text, /\*\*kiwee: of 2 criteria 1 reproduced, 1 not reproduced\.\*\*/);
  const published =
    /^\| Virginia +\| dc-far, kiwee-like +\| h3 +\| published \| 1\.2800 \| 1\.3491 \| 1\.5220 \| 1\.9210 \| 1\.1430 \| 2\.1730 \|/m;
  assert.match(text, published);
  assert.match(
    text,
    /^\| Virginia +\| dc-far, kiwee-like +\| h3 +\| measured +\| 0\.7\d{3} \| 0\.7\d{3} \|.*\| +30 \|$/m,
  );
  assert.match(
    text,
    /h3 is so much of h2 +\| 0\.6 to 0\.9 +\| +0\.765 \| 0\.7\d\d \[0\.7\d\d, 0\.7\d\d\] \| +30 \| +reproduced \|/,
  );
  const why = text.slice(
    text.indexOf('## What did not reproduce'),
    text.indexOf('## What remains undecided'),
  );
  assert.match(
    why,
    /- h3 is behind: measured 0\.7.*Contrary to the expectation \("reproduced": .*nginx of 2023/,
  );
  assert.doesNotMatch(text, /campaign is not finished/);
  const data = JSON.parse(readFileSync(join(out, 'reproduction.json'), 'utf8')) as {
    criteria: { id: string; verdict: string; low: number }[];
  };
  assert.deepEqual(
    data.criteria.map(({ id, verdict }) => [id, verdict]),
    [
      ['made', 'reproduced'],
      ['wrong', 'not reproduced'],
    ],
  );
});

test('a claim that was expected to fail is explained once', async () => {
  const criterion = { ...criterionOf({ low: 1 }), otherwise: 'a cache nobody thought of' };
  const foreseen = {
    ...criterion,
    expected: { verdict: 'not reproduced' as const, because: 'one server for both' },
  };
  const text = await writeReproduction(
    madeFolder('foreseen-', studyOf(foreseen), loadsOf(30, 0.75, 0.02), 'finished'),
  );
  assert.match(text, /As expected: one server for both\.$/m);
  assert.doesNotMatch(text, /a cache nobody thought of/);
});

test('an interrupted campaign is judged by its existing loads, and says so', async () => {
  const out = madeFolder('interrupted-', twoCriteria, loadsOf(7, 0.75, 0.02), 'interrupted');
  const text = await writeReproduction(out);
  assert.match(text, /campaign is not finished: 7 of 50 blocks so far/);
  assert.match(text, /1 reproduced, 1 not reproduced/);
});

test('the section of the report has the same verdicts', async () => {
  const out = madeFolder('section-', twoCriteria, loadsOf(30, 0.75, 0.02), 'finished');
  const section = parse(reproductionSection(await readReproduction(out)).markup);
  assert.deepEqual(
    section.querySelectorAll('td.good, td.found').map((td) => td.textContent),
    ['reproduced', 'not reproduced'],
  );
  // A result that did not reproduce is not marked as an error.
  assert.equal(section.querySelectorAll('.bad').length, 0);
  assert.match(section.textContent, /1\.2800/);
  assert.match(section.textContent, /nginx of 2023/);
});

for (const [name, study] of Object.entries(STUDIES)) {
  test(`section of the report on ${name} has code where its text has backticks`, async () => {
    const out = madeFolder(`code-${name}-`, study, [], 'interrupted');
    const { markup } = reproductionSection(await readReproduction(out));
    assert.doesNotMatch(markup, /`/);
    assert.match(markup, /<code>\w+<\/code>/);
    assert.match(readFileSync(join(out, 'criteria.json'), 'utf8'), /`/);
  });
}

test('criteria that were changed after they were written are rejected', async () => {
  const out = madeFolder('changed-', twoCriteria, loadsOf(30, 0.95, 0.02), 'finished');
  const path = join(out, CRITERIA);
  const text = readFileSync(path, 'utf8');
  writeFileSync(path, text.replace('"high": 0.9', '"high": 0.99'));
  await assert.rejects(
    readReproduction(out),
    (thrown) =>
      thrown instanceof LabError && thrown.line().includes('its hash does not match; restore'),
  );
  writeFileSync(
    path,
    text.replace(/"writtenAt": "[^"]+"/, '"writtenAt": "2999-01-01T00:00:00.000Z"'),
  );
  await assert.rejects(
    readReproduction(out),
    (thrown) => thrown instanceof LabError && thrown.message.includes('after the first load'),
  );
});

test('a campaign resumes only under its own criteria', () => {
  const out = madeFolder('other-', twoCriteria, [], 'interrupted');
  requireSameCriteria(out, twoCriteria);
  assert.equal(readCriteria(out).study.name, 'kiwee');
  assert.throws(() => {
    requireSameCriteria(out, kiwee);
  }, /another version of pronghorn-lab/);
  assert.throws(() => {
    requireSameCriteria(out, cloudflare);
  }, /belongs to the study kiwee/);
});
