import assert from 'node:assert/strict';
import test from 'node:test';
import type { Arm, ProfileFile } from '../src/plan.js';
import { REHEARSAL, schedule } from '../src/schedule.js';
import { deriveSeed, generator, MAX_SEED, randomBytes, shuffled } from '../src/seed.js';

const arms: Arm[] = ['a', 'b', 'c'].map((name) => ({ name, protocol: 'h2', congestion: 'cubic' }));
const profiles: ProfileFile[] = ['near', 'far'].map((name) => ({ name, path: `/${name}.toml`, text: '' }));
const plan = { arms, profiles, blocks: 40 };

const orders = (seed: number): string[] => {
  const blocks = new Map<string, string>();
  for (const { profile, block, arm } of schedule(plan, seed).filter((load) => load.block !== REHEARSAL)) {
    const key = `${profile.name}/${block}`;
    blocks.set(key, (blocks.get(key) ?? '') + arm.name);
  }
  return [...blocks.values()];
};

test('each block of each profile has each arm once', () => {
  const found = orders(1);
  assert.equal(found.length, 80);
  for (const order of found) assert.equal(order.split('').sort().join(''), 'abc');
});

test('rehearsal comes first and has each arm once, on the first profile', () => {
  const [a, b, c, next] = schedule(plan, 1);
  assert.deepEqual([a, b, c].map((load) => load?.arm.name).sort(), ['a', 'b', 'c']);
  assert.deepEqual(
    [a, b, c].map((load) => `${load?.profile.name ?? ''} ${load?.block ?? ''}`),
    Array(3).fill(`near ${REHEARSAL}`),
  );
  assert.equal(next?.block, 1);
});

test('same seed gives the same order and another seed another one', () => {
  assert.deepEqual(orders(7), orders(7));
  assert.notDeepEqual(orders(7), orders(8));
});

test('all orders of three arms occur', () => {
  assert.equal(new Set(orders(1)).size, 6);
});

test('arms of a block share the link seed and no two blocks or profiles do', () => {
  const seeds = new Map<string, Set<number>>();
  for (const { profile, block, linkSeed } of schedule(plan, 3)) {
    const key = `${profile.name}/${block}`;
    seeds.set(key, (seeds.get(key) ?? new Set()).add(linkSeed));
  }
  assert.ok([...seeds.values()].every((each) => each.size === 1));
  assert.equal(new Set([...seeds.values()].flatMap((each) => [...each])).size, 81);
});

test('derived seeds are exact integers within bounds', () => {
  for (let block = 0; block < 200; block++) {
    const seed = deriveSeed(MAX_SEED, 'link', block);
    assert.ok(Number.isSafeInteger(seed) && seed >= 0 && seed <= MAX_SEED);
  }
});

test('seeds that differ in their upper bits only give different streams', () => {
  const low = randomBytes(32, generator(5));
  const high = randomBytes(32, generator(5 + 2 ** 40));
  assert.notDeepEqual(low, high);
});

test('shuffle leaves its input alone', () => {
  const items = Object.freeze([1, 2, 3, 4]);
  assert.deepEqual([...shuffled(items, generator(1))].sort(), [1, 2, 3, 4]);
});
