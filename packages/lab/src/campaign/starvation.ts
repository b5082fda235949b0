import type { MachineCpu } from '../run/machine-cpu.js';

/**
 * A round is starved if others took more than this share of the processors and left fewer than this
 * number of them idle.
 */
export const MAX_OTHERS_SHARE = 0.25;
export const IDLE_ENOUGH = 2;

/**
 * A round is also starved if in one of its loads others took more than this share of what the load
 * itself did not use, and more than `LEAST_OF_ONE` of all processors: in a round of many loads, one
 * starved load is a small part of the time.
 */
export const MAX_SHARE_OF_REST = 0.5;
export const MIN_SHARE_OF_ONE = 0.1;

/**
 * A round is also starved if a quota stopped its processes for more than this share of the time.
 */
export const MAX_THROTTLED_SHARE = 0.01;

/**
 * Returns why the machine invalidates a round's loads; undefined if it does not. A round is all
 * arms' loads of a block on one profile and page, which run one right after the other.
 *
 * The round is judged as a whole. Judged one by one, the loads of the protocol that costs more
 * processor time would look better: where others take all that is left, less is left for them. How
 * long the load's own processes waited is no criterion either: they wait for each other, and more
 * so over that protocol. README has the measurement behind the numbers.
 */
export function starvationFault(loads: readonly (MachineCpu | undefined)[]): string | undefined {
  const known = loads.flatMap((machine) =>
    machine?.othersShare === undefined ? [] : [{ ...machine, others: machine.othersShare }],
  );
  const { others, idle, stolen, cores, throttled } = pooled(known);
  if (throttled > MAX_THROTTLED_SHARE) {
    return `the machine was starved: a quota stopped processes for ${percent(throttled)} of the time of these arms' loads (cpu.stat)`;
  }
  if (others > MAX_OTHERS_SHARE && idle * cores < IDLE_ENOUGH) {
    return `the machine was starved: others used ${percent(others)} of its processors during the loads of this block (${percent(stolen)} stolen)`;
  }
  const worst = known
    .filter(isStarved)
    .sort((one, other) => othersOfRest(other) - othersOfRest(one))[0];
  if (worst === undefined) return undefined;
  return `the machine was starved: in a load of this block others used ${percent(othersOfRest(worst))} of the processor time that the load left`;
}

type Known = MachineCpu & { readonly others: number };

function isStarved(load: Known): boolean {
  return (
    load.others > MIN_SHARE_OF_ONE &&
    load.idleShare * load.cores < IDLE_ENOUGH &&
    othersOfRest(load) > MAX_SHARE_OF_REST
  );
}

function othersOfRest({ others, idleShare }: Known): number {
  return others / (others + idleShare);
}

/** Shares of the time of all loads together. */
function pooled(loads: readonly Known[]): {
  others: number;
  idle: number;
  stolen: number;
  cores: number;
  throttled: number;
} {
  const time = loads.reduce((sum, { seconds }) => sum + seconds, 0);
  const mean = (share: (load: Known) => number): number =>
    loads.reduce((sum, load) => sum + share(load) * load.seconds, 0) /
    Math.max(time, Number.MIN_VALUE);
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
