import assert from 'node:assert/strict';
import test from 'node:test';
import type { Arm, PageSource, ProfileFile } from '../src/campaign/plan.js';
import { REHEARSAL, schedule } from '../src/campaign/schedule.js';
import { deriveSeed, generator, MAX_SEED, randomBytes, shuffled } from '../src/campaign/seed.js';

const arms: Arm[] = ['a', 'b', 'c'].map((name) => ({
  name,
  protocol: 'h2',
  congestion: 'cubic',
  visit: 'first',
  server: 'pronghorn',
}));
const profiles: ProfileFile[] = ['near', 'far'].map((name) => ({
  name,
  path: `/${name}.toml`,
  text: '',
}));
const pages: PageSource[] = ['small', 'large'].map((name) => ({
  kind: 'spec',
  name,
  path: `/${name}.toml`,
}));
const plan = { arms, profiles, pages };
const BLOCKS = 40;

const orders = (seed: number): string[] => {
  const blocks = new Map<string, string>();
  for (const { profile, page, block, arm } of schedule(plan, BLOCKS, seed).flat()) {
    const key = `${profile.name}/${page}/${block}`;
    blocks.set(key, (blocks.get(key) ?? '') + arm.name);
  }
  return [...blocks.values()];
};

test('each block has each arm once on each profile and page, in direct succession', () => {
  const found = orders(1);
  assert.equal(found.length, 4 * (BLOCKS + 1));
  for (const order of found) assert.equal(order.split('').sort().join(''), 'abc');
});

test('rehearsal comes first, and loads are numbered from 1 without a gap', () => {
  const blocks = schedule(plan, BLOCKS, 1);
  assert.deepEqual(
    blocks.map((loads) => [...new Set(loads.map(({ block }) => block))]),
    Array.from({ length: BLOCKS + 1 }, (_, block) => [block]),
  );
  assert.equal(blocks[0]?.[0]?.block, REHEARSAL);
  assert.deepEqual(
    blocks.flat().map(({ number }) => number),
    Array.from({ length: 12 * (BLOCKS + 1) }, (_, index) => index + 1),
  );
});

test('profiles and pages have another order in each block', () => {
  const places = schedule(plan, BLOCKS, 1).map((loads) =>
    [...new Set(loads.map(({ profile, page }) => `${profile.name} ${page}`))].join(),
  );
  assert.ok(new Set(places).size > 10, String(new Set(places).size));
});

test('longer schedule starts with the shorter one', () => {
  assert.deepEqual(schedule(plan, BLOCKS, 1).slice(0, 4), schedule(plan, 3, 1));
});

test('same seed gives the same order, and another seed gives another one', () => {
  assert.deepEqual(orders(7), orders(7));
  assert.notDeepEqual(orders(7), orders(8));
});

/**
 * Schedules so many arms and blocks, and returns the positions of each arm on each profile and
 * page.
 */
function positionsOf(count: number, blocks: number, seed: number): number[][] {
  const many = Array.from({ length: count }, (_, at) => ({
    ...(arms[0] as Arm),
    name: `arm-${at}`,
  }));
  const positions = new Map<string, number[]>();
  for (const { profile, page, arm, block, position } of schedule(
    { ...plan, arms: many },
    blocks,
    seed,
  ).flat()) {
    if (block === REHEARSAL) continue;
    const key = `${profile.name}/${page}/${arm.name}`;
    positions.set(key, [...(positions.get(key) ?? []), position]);
  }
  return [...positions.values()];
}

const timesOf = (values: readonly number[], value: number): number =>
  values.filter((each) => each === value).length;

for (const count of [2, 3, 4, 5, 9]) {
  test(`each of ${count} arms is equally often at each position, over every ${count} blocks`, () => {
    for (const seed of [1, 2, 3]) {
      for (const positions of positionsOf(count, 3 * count, seed)) {
        for (let place = 1; place <= count; place++) {
          for (const turns of [1, 2, 3])
            assert.equal(timesOf(positions.slice(0, turns * count), place), turns);
        }
      }
    }
  });
}

for (const count of [2, 3, 4, 5]) {
  test(`each of ${count} arms follows each other arm equally often`, () => {
    const many = Array.from({ length: count }, (_, at) => ({
      ...(arms[0] as Arm),
      name: `arm-${at}`,
    }));
    const blocks = 2 * count;
    const after = new Map<string, number>();
    const [profile] = profiles as [ProfileFile];
    for (const loads of schedule(
      { arms: many, profiles: [profile], pages: pages.slice(0, 1) },
      blocks,
      5,
    ).slice(1)) {
      loads.slice(1).forEach(({ arm }, at) => {
        const key = `${loads[at]?.arm.name ?? ''} ${arm.name}`;
        after.set(key, (after.get(key) ?? 0) + 1);
      });
    }
    assert.equal(after.size, count * (count - 1));
    assert.deepEqual([...new Set(after.values())], [2]);
  });
}

/**
 * Computes, in loads, what a machine that slows the first load of each block would add to the
 * difference of two arms.
 */
test('machine that is slow for the first load of a block favours no arm over ten blocks', () => {
  const leads = [...Array(40).keys()].flatMap((seed) =>
    positionsOf(2, 10, seed).map((positions) => timesOf(positions, 1) - 5),
  );
  assert.ok(
    leads.every((lead) => lead === 0),
    leads.join(),
  );
});

test('all orders of three arms occur', () => {
  assert.equal(new Set(orders(1)).size, 6);
});

test('arms of a block share the link seed and no two blocks, profiles or pages do', () => {
  const seeds = new Map<string, Set<number>>();
  for (const { profile, page, block, linkSeed } of schedule(plan, BLOCKS, 3).flat()) {
    const key = `${profile.name}/${page}/${block}`;
    seeds.set(key, (seeds.get(key) ?? new Set()).add(linkSeed));
  }
  assert.ok([...seeds.values()].every((each) => each.size === 1));
  assert.equal(new Set([...seeds.values()].flatMap((each) => [...each])).size, 4 * (BLOCKS + 1));
});

test('derived seeds are exact integers within bounds', () => {
  for (let block = 0; block < 200; block++) {
    const seed = deriveSeed(MAX_SEED, 'link', block);
    assert.ok(Number.isSafeInteger(seed) && seed >= 0 && seed <= MAX_SEED);
  }
});

test('seeds that differ only in their upper bits give different streams', () => {
  const low = randomBytes(32, generator(5));
  const high = randomBytes(32, generator(5 + 2 ** 40));
  assert.notDeepEqual(low, high);
});

test('shuffle does not change its input', () => {
  const items = Object.freeze([1, 2, 3, 4]);
  assert.deepEqual([...shuffled(items, generator(1))].sort(), [1, 2, 3, 4]);
});
