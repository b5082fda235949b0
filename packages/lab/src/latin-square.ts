import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { shuffled } from './seed.js';

/**
 * Orders of `items`, one a block, in which each item stands equally often at each place: each `items.length` orders from the
 * first one on are a Latin square. Drawn: which item is which of the square, and the order of its rows.
 *
 * The square is Williams' one (1949): each item also comes equally often right after each other one, over one square where
 * the number of items is even, and over two, the second with its rows mirrored, where it is odd. So what an item leaves
 * behind for the next one, such as a warm file cache, is shared out too.
 */
export function balancedOrders<T>(items: readonly T[], random: RandomGenerator): T[][] {
  const names = shuffled(items, random);
  const rows = williamsRows(names.length);
  const squares = names.length % 2 === 0 ? [rows] : [rows, rows.map((row) => [...row].reverse())];
  return squares.flatMap((square) => shuffled(square, random)).map((row) => row.map((at) => names[at] as T));
}

/** How many orders `balancedOrders` gives for so many items. */
export function balancedPeriod(items: number): number {
  return items % 2 === 0 ? items : 2 * items;
}

/** 0, 1, n - 1, 2, n - 2 and so on, and the same with each number one more, n times. */
function williamsRows(size: number): number[][] {
  const first = Array.from({ length: size }, (_, at) => (at % 2 === 1 ? (at + 1) / 2 : (size - at / 2) % size));
  return Array.from({ length: size }, (_, more) => first.map((number) => (number + more) % size));
}
