import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64';
import { generator } from '../src/campaign/seed.js';
import { normalQuantile } from '../src/statistics/distributions.js';

/** Random numbers from a seed. */
export interface Draws {
  /** Between 0 and 1. */
  uniform(): number;
  normal(): number;
  /** Log-normal around 1; `spread` is approximately the coefficient of variation. */
  logNormal(spread: number): number;
}

export function draws(seed: number): Draws {
  const random = generator(seed);
  const uniform = (): number => uniformFloat64(random);
  const normal = (): number => normalQuantile(Math.max(uniform(), 1e-12));
  return { uniform, normal, logNormal: (spread) => Math.exp(spread * normal()) };
}

/** Calls `make` so many times and returns the results. */
export function times<T>(count: number, make: (at: number) => T): T[] {
  return Array.from({ length: count }, (_, at) => make(at));
}
