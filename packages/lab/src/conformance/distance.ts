/** A second of a transfer: what came through, and how long packets waited in the queue, each as a share of the most that the link has. */
export interface Point {
  readonly throughput: number;
  readonly delay: number;
}

/**
 * The energy distance of two clouds of points: the mean distance between a point of one and a point of the other, less
 * the mean of the mean distances within each.
 *
 *     D(X, Y) = E|X − Y| − (E|X − X′| + E|Y − Y′|) / 2
 *
 * It is 0 for two clouds that are alike, never negative, and for two narrow clouds simply how far they lie apart: 0.1 is a tenth
 * of the link's rate, or a tenth of its full queue. Undefined without points.
 */
export function energyDistance(xs: readonly Point[], ys: readonly Point[]): number | undefined {
  if (xs.length === 0 || ys.length === 0) return undefined;
  const distance = meanDistance(xs, ys) - (meanDistance(xs, xs) + meanDistance(ys, ys)) / 2;
  // What rounding leaves of nothing.
  return Math.max(0, distance);
}

function meanDistance(xs: readonly Point[], ys: readonly Point[]): number {
  let sum = 0;
  for (const x of xs) for (const y of ys) sum += Math.hypot(x.throughput - y.throughput, x.delay - y.delay);
  return sum / (xs.length * ys.length);
}
