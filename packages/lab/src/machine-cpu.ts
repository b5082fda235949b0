import { readFileSync } from 'node:fs';

/** The processors' counters at one moment. */
export interface CpuCounters {
  /** Ticks of all processors in each state, as /proc/stat has them. */
  readonly all: number;
  readonly idle: number;
  readonly steal: number;
  readonly cores: number;
  /** How long at least one task has waited for a processor, since the start of the machine; undefined where the kernel does not count it. */
  readonly waitingSeconds: number | undefined;
  readonly atSeconds: number;
}

/** What became of the machine's processors while a load was made. Shares are of all processors' time, but for the last one. */
export interface MachineCpu {
  readonly cores: number;
  /** From before the load's first process until after its last one. */
  readonly seconds: number;
  readonly idleShare: number;
  /** Given to other machines by the host of a virtual one. */
  readonly stealShare: number;
  /** Used by all that does not belong to the load, stolen time included. Undefined where it is not known what the load used. */
  readonly othersShare?: number;
  /** For which share of the time at least one task waited for a processor (pressure stall information). */
  readonly waitingShare?: number;
}

/**
 * A load is starved if what others took was more than this share of the processors.
 *
 * Only what others took is looked at, and not how long the load's own processes waited: they wait for each other too, and more
 * so with the protocol that costs more, so that such a rule would leave out the slow loads of one protocol. README has the
 * measurement that the number comes from.
 */
export const MOST_FOR_OTHERS = 0.25;

/** Reads the counters; undefined where there are none of the kind. */
export function readCpuCounters(proc = '/proc'): CpuCounters | undefined {
  try {
    return parseCpuCounters(
      readFileSync(`${proc}/stat`, 'utf8'),
      readOr(`${proc}/pressure/cpu`, ''),
      performance.now() / 1000,
    );
  } catch {
    return undefined;
  }
}

export function parseCpuCounters(stat: string, pressure: string, atSeconds: number): CpuCounters | undefined {
  const lines = stat.split('\n');
  const total = lines.find((line) => line.startsWith('cpu '));
  if (total === undefined) return undefined;
  // user nice system idle iowait irq softirq steal; what guests use is in the first two already.
  const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0] = total
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const waiting = /^some .*total=(\d+)/m.exec(pressure)?.[1];
  return {
    all: user + nice + system + idle + wait + irq + soft + steal,
    idle: idle + wait,
    steal,
    cores: lines.filter((line) => /^cpu\d/.test(line)).length,
    waitingSeconds: waiting === undefined ? undefined : Number(waiting) / 1e6,
    atSeconds,
  };
}

/** What happened between two readings, of which the load's own processes used `ownSeconds`. */
export function machineCpu(
  before: CpuCounters | undefined,
  after: CpuCounters | undefined,
  ownSeconds: number | undefined,
): MachineCpu | undefined {
  if (before === undefined || after === undefined || after.all <= before.all) return undefined;
  const { cores } = after;
  const [all, seconds] = [after.all - before.all, after.atSeconds - before.atSeconds];
  const idleShare = (after.idle - before.idle) / all;
  const others = ownSeconds === undefined ? undefined : 1 - idleShare - ownSeconds / (cores * seconds);
  const waiting =
    before.waitingSeconds === undefined || after.waitingSeconds === undefined
      ? undefined
      : (after.waitingSeconds - before.waitingSeconds) / seconds;
  return {
    cores,
    seconds,
    idleShare,
    stealShare: (after.steal - before.steal) / all,
    // Ticks are coarse, so that nothing may come out as a little less than that.
    ...(others !== undefined && { othersShare: Math.max(0, others) }),
    ...(waiting !== undefined && { waitingShare: Math.min(1, waiting) }),
  };
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}
