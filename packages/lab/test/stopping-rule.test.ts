import assert from 'node:assert/strict';
import test from 'node:test';
import { StoppingRule, type LoadFacts } from '../src/compare/stopping-rule.js';
import type { Arm, Plan } from '../src/campaign/plan.js';
import { draws } from './draws.js';

const armOf = (name: string): Arm => ({
  name,
  protocol: 'h2',
  congestion: 'cubic',
  visit: 'first',
  server: 'pronghorn',
});
const arms: Arm[] = [armOf('h2'), armOf('h3'), { ...armOf('h2-again'), repeats: 'h2' }];
const plan: Pick<Plan, 'arms' | 'baseline' | 'blocks'> = {
  arms,
  baseline: 'h2',
  blocks: { min: 10, max: 60, intervalPercent: 5 },
};
/** The server answered before the load. */
const warmth: LoadFacts['warmth'] = {
  server: 'pronghorn',
  answered: ['h2'],
  warmed: ['h2'],
  silent: [],
};

const at = (block: number): Parameters<StoppingRule['isEnough']>[0] => ({
  profile: { name: 'lte', path: '', text: '' },
  page: 'page',
  block,
});

/** Returns loads of so many blocks whose times vary by so much. */
function made(blocks: number, spread: number, profile = 'lte'): LoadFacts[] {
  const random = draws(7);
  return Array.from({ length: blocks }, (_, index) =>
    arms.map(({ name }) => ({
      profile,
      page: 'page',
      arm: name,
      block: index + 1,
      valid: true,
      times: { load: 1 + spread * (random.uniform() - 0.5) },
      warmth,
    })),
  ).flat();
}

/** Returns the first block that is not needed. */
function firstSpared(rule: StoppingRule): number | undefined {
  return Array.from({ length: 60 }, (_, index) => index + 1).find((block) =>
    rule.isEnough(at(block)),
  );
}

test('steady loads have enough after the minimum number of blocks, scattered ones do not', () => {
  assert.equal(firstSpared(new StoppingRule(plan, 1, made(60, 0.02))), 11);
  const scattered = firstSpared(new StoppingRule(plan, 1, made(60, 0.5)));
  assert.ok(scattered === undefined || scattered > 20, String(scattered));
});

test('link with its own number of blocks has enough after that, the others continue', () => {
  for (const intervalPercent of [undefined, 5]) {
    const rule = new StoppingRule(
      { ...plan, blocks: { min: 10, max: 60, intervalPercent } },
      1,
      made(60, 0.5),
    );
    const load = (block: number): ReturnType<typeof at> => ({
      ...at(block),
      profile: { ...at(1).profile, blocks: 4 },
    });
    assert.deepEqual(
      [0, 1, 4, 5, 60].map((block) => rule.isEnough(load(block))),
      [false, false, false, true, true],
    );
    assert.equal(rule.isEnough(at(5)), false);
  }
});

test('arm with the name of a control is compared with the baseline, not with the arm of that name', () => {
  const valid: Readonly<Record<string, readonly [from: number, to: number]>> = {
    h2: [1, 10],
    h3: [1, 6],
    // Six blocks with the baseline, two with h3: too few for an interval.
    'h3-again': [5, 10],
  };
  const loads = Object.entries(valid).flatMap(([arm, [from, to]]) =>
    Array.from({ length: to - from + 1 }, (_, index): LoadFacts => {
      const block = from + index;
      return {
        profile: 'lte',
        page: 'page',
        arm,
        block,
        valid: true,
        times: { load: 1 + block / 1000 },
        warmth,
      };
    }),
  );
  const enough = (repeats: string | undefined): boolean => {
    const again = { ...armOf('h3-again'), ...(repeats !== undefined && { repeats }) };
    return new StoppingRule(
      { ...plan, arms: [armOf('h2'), armOf('h3'), again] },
      1,
      loads,
    ).isEnough(at(11));
  };
  assert.equal(enough(undefined), true);
  assert.equal(enough('h3'), false);
});

test('later loads do not change an earlier decision', () => {
  const all = made(60, 0.12);
  const whole = firstSpared(new StoppingRule(plan, 1, all));
  const rule = new StoppingRule(plan, 1, []);
  let spared: number | undefined;
  for (let block = 1; block <= 60 && spared === undefined; block++) {
    if (rule.isEnough(at(block))) spared = block;
    for (const one of all.filter((each) => each.block === block)) rule.add(one);
  }
  assert.ok(spared !== undefined);
  assert.equal(spared, whole);
});

test('rehearsals do not count', () => {
  const few = { ...plan, blocks: { min: 5, max: 60, intervalPercent: 50 } };
  const five = made(5, 0.02);
  assert.equal(new StoppingRule(few, 1, five).isEnough(at(6)), false);
  const rehearsals = five.filter(({ block }) => block === 1).map((load) => ({ ...load, block: 0 }));
  assert.equal(new StoppingRule(few, 1, [...rehearsals, ...five]).isEnough(at(6)), false);
  assert.equal(new StoppingRule(few, 1, made(6, 0.02)).isEnough(at(7)), true);
});

test('each profile and page is judged separately, and the rehearsal is not judged', () => {
  const fibre = { name: 'fibre', path: '', text: '' };
  const rule = new StoppingRule(plan, 1, made(60, 0.02, 'fibre'));
  assert.equal(rule.isEnough(at(11)), false);
  assert.equal(rule.isEnough({ ...at(11), profile: fibre }), true);
  assert.equal(rule.isEnough({ ...at(0), profile: fibre }), false);
});

test('a fixed number of blocks is completed', () => {
  const fixed = { ...plan, blocks: { min: 60, max: 60, intervalPercent: undefined } };
  assert.equal(firstSpared(new StoppingRule(fixed, 1, made(60, 0.02))), undefined);
});

test('blocks in which the machine was starved do not count', () => {
  const starved = { cores: 2, seconds: 1, idleShare: 0, stealShare: 0, othersShare: 0.5 };
  const loads = made(60, 0.02).map((load) =>
    load.block > 4 && load.block < 15 ? { ...load, machine: starved } : load,
  );
  const spared = firstSpared(new StoppingRule(plan, 1, loads));
  assert.ok(spared !== undefined && spared > 15, String(spared));
});

test('blocks in which the link was late do not count', () => {
  const late = { packets: 300, late: 30, p50: 100, p99: 5000, max: 9000 };
  const link = { kept_deadlines: false, lateness_us: late, lateness_bound_us: 500 };
  // Of one arm only.
  const loads = made(60, 0.02).map((load) =>
    load.arm === 'h3' && load.block > 4 && load.block < 15 ? { ...load, link } : load,
  );
  const spared = firstSpared(new StoppingRule(plan, 1, loads));
  assert.ok(spared !== undefined && spared > 15, String(spared));
});

test('loads of a cold server do not count', () => {
  const loads = made(60, 0.02).map((load) =>
    load.arm === 'h3' && load.block > 4 && load.block < 15
      ? { ...load, warmth: { ...warmth, answered: [], warmed: [], silent: ['h2' as const] } }
      : load,
  );
  const spared = firstSpared(new StoppingRule(plan, 1, loads));
  assert.ok(spared !== undefined && spared > 15, String(spared));
});
