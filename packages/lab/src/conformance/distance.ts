/** A second of a transfer: throughput and queue delay, each as a share of the link's maximum. */
export interface Point {
  readonly throughput: number;
  readonly delay: number;
}

/**
 * Returns the energy distance of two clouds of points: the mean distance between a point of one and
 * a point of the other, minus the mean of the mean distances within each.
 *
 *     D(X, Y) = E|X − Y| − (E|X − X′| + E|Y − Y′|) / 2
 *
 * It is 0 for identical clouds and never negative. For two narrow clouds it is the distance between
 * them: 0.1 is a tenth of the link's rate, or a tenth of its full queue. Undefined without points.
 */
export function energyDistance(xs: readonly Point[], ys: readonly Point[]): number | undefined {
  if (xs.length === 0 || ys.length === 0) return undefined;
  const distance = meanDistance(xs, ys) - (meanDistance(xs, xs) + meanDistance(ys, ys)) / 2;
  // Rounding may leave a small negative number.
  return Math.max(0, distance);
}

function meanDistance(xs: readonly Point[], ys: readonly Point[]): number {
  let sum = 0;
  for (const x of xs)
    for (const y of ys) sum += Math.hypot(x.throughput - y.throughput, x.delay - y.delay);
  return sum / (xs.length * ys.length);
}
