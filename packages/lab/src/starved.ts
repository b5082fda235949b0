import type { MachineCpu } from './machine-cpu.js';

/** A round is starved if others took more than this share of the processors, and left fewer than this number of them idle. */
export const MOST_FOR_OTHERS = 0.25;
export const IDLE_ENOUGH = 2;

/**
 * Also if in one of its loads they took more than this share of what the load itself did not use, and more than so much of all: in a
 * round of many loads one that was starved is little of the time.
 */
export const MOST_OF_REST = 0.5;
export const LEAST_OF_ONE = 0.1;

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
  if (others > MOST_FOR_OTHERS && idle * cores < IDLE_ENOUGH) {
    return `the machine was starved: others had ${percent(others)} of its processors in the loads of this block (${percent(stolen)} stolen)`;
  }
  const worst = known.filter(isStarved).sort((one, other) => othersOfRest(other) - othersOfRest(one))[0];
  if (worst === undefined) return undefined;
  return `the machine was starved: in a load of this block others had ${percent(othersOfRest(worst))} of what the load left of its processors`;
}

type Known = MachineCpu & { readonly others: number };

function isStarved(load: Known): boolean {
  return load.others > LEAST_OF_ONE && load.idleShare * load.cores < IDLE_ENOUGH && othersOfRest(load) > MOST_OF_REST;
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
