// The package's types exist only for its CommonJS entry.
// eslint-disable-next-line @typescript-eslint/no-require-imports
import cephes = require('cephes');

await cephes.compiled;

/** Returns the share of the standard normal distribution below `z`. */
export function normalCdf(z: number): number {
  if (!Number.isFinite(z)) return z > 0 ? 1 : 0;
  return cephes.ndtr(z);
}

/** Returns the value below which a share of the standard normal distribution lies. */
export function normalQuantile(share: number): number {
  if (share <= 0) return -Infinity;
  if (share >= 1) return Infinity;
  return cephes.ndtri(share);
}

/** Returns the probability of at most `k` successes in `n` trials. */
export function binomialCdf(k: number, n: number, probability: number): number {
  if (k < 0) return 0;
  if (k >= n) return 1;
  return cephes.bdtr(k, n, probability);
}

/**
 * Returns the smallest number of successes that `n` trials do not exceed with at least this
 * probability.
 */
export function binomialQuantile(share: number, n: number, probability: number): number {
  let k = 0;
  while (k < n && binomialCdf(k, n, probability) < share) k += 1;
  return k;
}

/** Returns the value below which a share of the beta distribution lies. */
export function betaQuantile(share: number, a: number, b: number): number {
  return cephes.incbi(a, b, share);
}

/** Returns the value below which a share of Student's distribution lies. */
export function studentQuantile(share: number, degreesOfFreedom: number): number {
  return cephes.stdtri(degreesOfFreedom, share);
}
