import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The processors' counters at one moment. */
export interface CpuCounters {
  /** Ticks of all processors in each state, as /proc/stat has them. */
  readonly all: number;
  readonly idle: number;
  readonly steal: number;
  readonly cores: number;
  /** How long at least one task has waited for a processor, since the start of the machine; undefined where the kernel does not count it. */
  readonly waitingSeconds: number | undefined;
  /** How long the quotas of this process's control groups have stopped processes, summed over processors; undefined without such groups. */
  readonly throttledSeconds: number | undefined;
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
  /** For how long a quota of a control group (such as a container's) stopped processes, summed over processors, per second. */
  readonly throttledShare?: number;
}

/** Reads the counters; undefined where there are none of the kind. */
export function readCpuCounters(proc = '/proc', cgroups = '/sys/fs/cgroup'): CpuCounters | undefined {
  try {
    return parseCpuCounters(
      readFileSync(`${proc}/stat`, 'utf8'),
      readOr(`${proc}/pressure/cpu`, ''),
      performance.now() / 1000,
      throttled(readOr(`${proc}/self/cgroup`, ''), cgroups),
    );
  } catch {
    return undefined;
  }
}

export function parseCpuCounters(
  stat: string,
  pressure: string,
  atSeconds: number,
  throttledSeconds?: number,
): CpuCounters | undefined {
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
    throttledSeconds,
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
  const throttledSeconds =
    before.throttledSeconds === undefined || after.throttledSeconds === undefined
      ? undefined
      : after.throttledSeconds - before.throttledSeconds;
  return {
    cores,
    seconds,
    idleShare,
    stealShare: (after.steal - before.steal) / all,
    // Ticks are coarse, so that nothing may come out as a little less than that.
    ...(others !== undefined && { othersShare: Math.max(0, others) }),
    ...(waiting !== undefined && { waitingShare: Math.min(1, waiting) }),
    ...(throttledSeconds !== undefined && { throttledShare: throttledSeconds / seconds }),
  };
}

/**
 * The sum over the control groups of a process and those above them, in which a quota may stand as well: `throttled_usec` of version 2,
 * `throttled_time` (nanoseconds) of version 1 (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
 */
function throttled(membership: string, cgroups: string): number | undefined {
  const found = membership.split('\n').flatMap((line) => {
    const [, id, controllers = '', path = ''] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (id === '0') return throttledAt(cgroups, path) ?? throttledAt(join(cgroups, 'unified'), path) ?? [];
    if (!controllers.split(',').includes('cpu')) return [];
    return throttledAt(join(cgroups, controllers), path) ?? throttledAt(join(cgroups, 'cpu'), path) ?? [];
  });
  return found.length === 0 ? undefined : found.reduce((sum, seconds) => sum + seconds, 0);
}

function throttledAt(root: string, path: string): number | undefined {
  let sum: number | undefined;
  for (let at = path; ; at = dirname(at)) {
    const text = readOr(join(root, at, 'cpu.stat'), '');
    const microseconds = /^throttled_usec (\d+)$/m.exec(text)?.[1];
    const nanoseconds = /^throttled_time (\d+)$/m.exec(text)?.[1];
    if (microseconds !== undefined) sum = (sum ?? 0) + Number(microseconds) / 1e6;
    else if (nanoseconds !== undefined) sum = (sum ?? 0) + Number(nanoseconds) / 1e9;
    if (at === '/') return sum;
  }
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}
