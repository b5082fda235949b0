import { createHash, randomInt } from 'node:crypto';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';

/**
 * Seeds are whole numbers of at most 48 bits, which JSON, TOML and JavaScript all represent
 * exactly.
 */
export const MAX_SEED = 2 ** 48 - 1;

/** Returns a seed from the system's randomness, for a campaign whose plan names none. */
export function freshSeed(): number {
  return randomInt(MAX_SEED);
}

/**
 * Returns a seed derived from a parent seed and a purpose.
 *
 * Hashing keeps neighbours apart: block 1 of campaign 7 shares nothing with block 7 of campaign 1.
 */
export function deriveSeed(parent: number, ...purpose: readonly (string | number)[]): number {
  const digest = createHash('sha256')
    .update(JSON.stringify([parent, ...purpose]))
    .digest();
  return digest.readUIntBE(0, 6);
}

/** Returns a generator for a derived seed. */
export function generator(seed: number): RandomGenerator {
  // The library takes 32 bits; folding uses all 48.
  return xoroshiro128plus((seed ^ Math.floor(seed / 2 ** 32)) | 0);
}

/** Returns a copy of `items` in an order drawn from `random` (Fisher-Yates). */
export function shuffled<T>(items: readonly T[], random: RandomGenerator): T[] {
  const result = [...items];
  for (let last = result.length - 1; last > 0; last--) {
    const pick = uniformInt(random, 0, last);
    [result[last], result[pick]] = [result[pick] as T, result[last] as T];
  }
  return result;
}

/** Returns `length` incompressible bytes. */
export function randomBytes(length: number, random: RandomGenerator): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) {
    const word = uniformInt(random, 0, 0xffff_ffff);
    for (let byte = 0; byte < 4 && at + byte < length; byte++)
      bytes[at + byte] = (word >>> (8 * byte)) & 0xff;
  }
  return bytes;
}
