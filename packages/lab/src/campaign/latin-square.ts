import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { shuffled } from './seed.js';

/**
 * Returns orders of `items`, one per block, in which each item is equally often in each position:
 * every `items.length` orders from the first on form a Latin square. The assignment of items to the
 * square and the order of its rows are random.
 *
 * The square is Williams' (1949): each item also follows each other item equally often, over one
 * square if the number of items is even, and over two, the second with mirrored rows, if it is odd.
 * This balances what an item leaves behind for the next one, such as a warm file cache.
 */
export function balancedOrders<T>(items: readonly T[], random: RandomGenerator): T[][] {
  const names = shuffled(items, random);
  const rows = williamsRows(names.length);
  const squares = names.length % 2 === 0 ? [rows] : [rows, rows.map((row) => [...row].reverse())];
  return squares
    .flatMap((square) => shuffled(square, random))
    .map((row) => row.map((at) => names[at] as T));
}

/** Returns the number of orders that `balancedOrders` gives for so many items. */
export function balancedPeriod(items: number): number {
  return items % 2 === 0 ? items : 2 * items;
}

/**
 * Returns n rows: 0, 1, n - 1, 2, n - 2 and so on, then the same with each number increased by one,
 * modulo n.
 */
function williamsRows(size: number): number[][] {
  const first = Array.from({ length: size }, (_, at) =>
    at % 2 === 1 ? (at + 1) / 2 : (size - at / 2) % size,
  );
  return Array.from({ length: size }, (_, more) => first.map((number) => (number + more) % size));
}
