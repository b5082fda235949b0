import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** The processors' counters at one moment. */
export interface CpuCounters {
  /** Ticks of all processors in each state, as in /proc/stat. */
  readonly all: number;
  readonly idle: number;
  readonly steal: number;
  readonly cores: number;
  /**
   * Time in which at least one task waited for a processor, since the machine's start; undefined if
   * the kernel does not count it.
   */
  readonly waitingSeconds: number | undefined;
  /**
   * Time for which the quotas of this process's control groups stopped processes, summed over
   * processors; undefined without such groups.
   */
  readonly throttledSeconds: number | undefined;
  readonly atSeconds: number;
}

/**
 * Use of the machine's processors during a load. Shares are of all processors' time, except the
 * last one.
 */
export interface MachineCpu {
  readonly cores: number;
  /** Time from before the load's first process until after its last one. */
  readonly seconds: number;
  readonly idleShare: number;
  /** Share that a virtual machine's host gave to others. */
  readonly stealShare: number;
  /**
   * Share of everything that does not belong to the load, including stolen time. Undefined if the
   * load's own use is unknown.
   */
  readonly othersShare?: number;
  /**
   * Share of the time in which at least one task waited for a processor (pressure stall
   * information).
   */
  readonly waitingShare?: number;
  /**
   * Time for which a control group's quota (such as a container's) stopped processes, summed over
   * processors, per second.
   */
  readonly throttledShare?: number;
}

/** Reads the counters; undefined if the system has none. */
export function readCpuCounters(
  proc = '/proc',
  cgroups = '/sys/fs/cgroup',
): CpuCounters | undefined {
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
  // user nice system idle iowait irq softirq steal; guests' time is included in the first two.
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

/** Returns the use between two readings, of which the load's own processes used `ownSeconds`. */
export function machineCpu(
  before: CpuCounters | undefined,
  after: CpuCounters | undefined,
  ownSeconds: number | undefined,
): MachineCpu | undefined {
  if (before === undefined || after === undefined || after.all <= before.all) return undefined;
  const { cores } = after;
  const [all, seconds] = [after.all - before.all, after.atSeconds - before.atSeconds];
  const idleShare = (after.idle - before.idle) / all;
  const others =
    ownSeconds === undefined ? undefined : 1 - idleShare - ownSeconds / (cores * seconds);
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
    // Ticks are coarse, so the difference may be slightly negative.
    ...(others !== undefined && { othersShare: Math.max(0, others) }),
    ...(waiting !== undefined && { waitingShare: Math.min(1, waiting) }),
    ...(throttledSeconds !== undefined && { throttledShare: throttledSeconds / seconds }),
  };
}

/**
 * Sums the throttled time over a process's control group and its ancestors, which may have quotas
 * too: `throttled_usec` of version 2, `throttled_time` (nanoseconds) of version 1
 * (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst).
 */
function throttled(membership: string, cgroups: string): number | undefined {
  const found = membership.split('\n').flatMap((line) => {
    const [, id, controllers = '', path = ''] = /^(\d+):([^:]*):(\/.*)$/.exec(line) ?? [];
    if (id === '0')
      return throttledAt(cgroups, path) ?? throttledAt(join(cgroups, 'unified'), path) ?? [];
    if (!controllers.split(',').includes('cpu')) return [];
    return (
      throttledAt(join(cgroups, controllers), path) ?? throttledAt(join(cgroups, 'cpu'), path) ?? []
    );
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
