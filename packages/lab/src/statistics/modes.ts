import { ascending } from './rank-tests.js';

/** Times that fall into two modes with a gap between them. */
export interface TwoModes {
  /** The median of each mode, in seconds. */
  readonly fast: number;
  readonly slow: number;
  readonly slowLoads: number;
  readonly loads: number;
}

/** Minimum number of loads in a mode; fewer are stragglers. */
const MIN_LOADS = 3;
const MIN_SHARE = 0.05;
/** Minimum number of loads in total; fewer have no visible shape. */
const MIN_LOADS_IN_ALL = 12;
/** Minimum width of the gap relative to the wider mode's spread. */
const GAP_IN_SPREADS = 2;

/**
 * Finds times with two modes, as when one timer decides: a lost SYN costs a second in any case.
 *
 * The rule: an empty gap between two neighbouring times that is at least twice as wide as the
 * spread of either side, with at least three loads and 5 % of all on each side. The spread is that
 * of the middle 80 %, or of all if there are fewer than ten loads. It is a reason to look at these
 * loads, not a test: of a thousand cells of 20 to 200 loads with one mode, log-normal, exponential
 * or uniform, it flags fewer than ten. Hartigan's dip test is not used, because it does not detect
 * the pattern in question: a tenth of the loads a second later.
 */
export function twoModes(times: readonly number[]): TwoModes | undefined {
  const sorted = times.filter(Number.isFinite).sort(ascending);
  const n = sorted.length;
  if (n < MIN_LOADS_IN_ALL) return undefined;
  const least = Math.max(MIN_LOADS, Math.ceil(MIN_SHARE * n));
  let best: TwoModes | undefined;
  let widest = GAP_IN_SPREADS;
  for (let split = least; split <= n - least; split++) {
    const [fast, slow] = [sorted.slice(0, split), sorted.slice(split)];
    const gap = (slow[0] as number) - (fast.at(-1) as number);
    const spreads = gap / Math.max(spread(fast), spread(slow));
    if (spreads < widest || Number.isNaN(spreads)) continue;
    widest = spreads;
    best = { fast: middle(fast), slow: middle(slow), slowLoads: slow.length, loads: n };
  }
  return best;
}

function spread(sorted: readonly number[]): number {
  const aside = Math.floor(sorted.length / 10);
  return (sorted.at(-1 - aside) as number) - (sorted[aside] as number);
}

function middle(sorted: readonly number[]): number {
  return sorted[(sorted.length - 1) >> 1] as number;
}
