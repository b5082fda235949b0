import type { MachineCpu } from './machine-cpu.js';

/** A round is starved if others took more than this share of the processors, and left fewer than this number of them idle. */
export const MOST_FOR_OTHERS = 0.25;
export const IDLE_ENOUGH = 2;

/** Also if a quota stopped its processes for more than this share of the time. */
export const MOST_THROTTLED = 0.01;

/**
 * Why a round's loads say nothing of the link; undefined where they do. A round is all arms' loads of a block on one profile and page,
 * which run one right after the other.
 *
 * The round is judged as a whole. Judged one by one, the loads of the protocol that costs more processor time would look better:
 * where others take all that is left, less is left for them. How long the load's own processes waited is no rule either: they wait for
 * each other, and more so over that protocol. README has the measurement that the numbers come from.
 */
export function whyStarved(loads: readonly (MachineCpu | undefined)[]): string | undefined {
  const known = loads.flatMap((machine) =>
    machine?.othersShare === undefined ? [] : [{ ...machine, others: machine.othersShare }],
  );
  const { others, idle, stolen, cores, throttled } = pooled(known);
  if (throttled > MOST_THROTTLED) {
    return `the machine was starved: a quota stopped processes for ${percent(throttled)} of the time of these arms' loads (cpu.stat)`;
  }
  if (others <= MOST_FOR_OTHERS || idle * cores >= IDLE_ENOUGH) return undefined;
  return `the machine was starved: others had ${percent(others)} of its processors in the loads of this block (${percent(stolen)} stolen)`;
}

/** Shares of the time of all loads together. */
function pooled(loads: readonly (MachineCpu & { readonly others: number })[]): {
  others: number;
  idle: number;
  stolen: number;
  cores: number;
  throttled: number;
} {
  const time = loads.reduce((sum, { seconds }) => sum + seconds, 0);
  const mean = (share: (load: (typeof loads)[number]) => number): number =>
    loads.reduce((sum, load) => sum + share(load) * load.seconds, 0) / Math.max(time, Number.MIN_VALUE);
  return {
    others: mean((load) => load.others),
    idle: mean((load) => load.idleShare),
    stolen: mean((load) => load.stealShare),
    cores: mean((load) => load.cores),
    throttled: mean((load) => load.throttledShare ?? 0),
  };
}

function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}
