import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** Minimum number of packets for which the 99th percentile differs from the maximum. */
export const MIN_PACKETS_FOR_P99 = 100;

const lateness = z.looseObject({
  /** Absent in older reports. */
  packets: z.number().optional(),
  /** Number of packets later than the bound. Absent in older reports. */
  late: z.number().optional(),
  p50: z.number(),
  p99: z.number(),
  max: z.number(),
});

/** One direction of the link: its settings and what it achieved. */
const direction = z.looseObject({
  asked: z.looseObject({
    rate_mbit_per_second: z.number().nullable(),
    delay_ms: z.number(),
    /** Longest pause of the link; with `reorder`, the maximum change of a packet's delay. */
    jitter_ms: z.number(),
    reorder: z.boolean().optional(),
    loss_percent: z.number(),
    /** Absent if packets are lost independently. */
    loss_burst_packets: z.number().optional(),
    queue_bytes: z.number().nullable(),
  }),
  packets_in: z.number(),
  bytes_in: z.number(),
  packets_out: z.number(),
  bytes_out: z.number(),
  packets_lost: z.number(),
  packets_queue_dropped: z.number(),
  packets_overflowed: z.number(),
  packets_oversized: z.number(),
  packets_write_failed: z.number(),
  tun_drops: z.number(),
  lateness_us: lateness,
});

const counters = z.looseObject({ packets: z.number(), bytes: z.number() });
const bothWays = z.looseObject({ up: counters, down: counters });

const flow = z.looseObject({
  protocol: z.string(),
  near_address: z.string(),
  near_port: z.number().nullable(),
  far_address: z.string(),
  /** Null for fragments, which do not contain it. */
  far_port: z.number().nullable(),
  up: counters,
  down: counters,
});

const cpu = z.looseObject({ user: z.number(), system: z.number() });
const command = z.looseObject({ cpu_seconds: cpu });
/** Kernel parameters of one end, by name. */
const parameters = z.record(z.string(), z.string());

const orNull = z.number().nullable();

/** The machine's state during the load, see docs/link.md. */
const machine = z.looseObject({
  seconds: z.number(),
  /** Whether the load announced its end; otherwise nothing is known about the browser. */
  end_marked: z.boolean(),
  processors: orNull,
  idle_seconds: orNull,
  steal_seconds: orNull,
  cpu_pressure_seconds: orNull,
  run_delay_seconds: z.looseObject({ emulator: orNull, link: orNull, near: orNull, far: orNull }),
});

/**
 * How often TCP at the server's end left slow start without a loss, and the sum of its windows
 * then.
 */
const hystart = z.looseObject({
  train_detected: z.number(),
  train_cwnd_packets: z.number(),
  delay_detected: z.number(),
  delay_cwnd_packets: z.number(),
});

const whole = z.looseObject({
  schema: z.literal('pronghorn-link-report/3'),
  profile: z.looseObject({ name: z.string(), hash: z.string() }),
  seed: z.number(),
  up: direction,
  down: direction,
  flows: z.array(flow),
  /** Packets that belong to no listed flow: too many flows, or no well-formed IP. */
  flows_beyond_table: bothWays,
  unparsed: bothWays,
  /** The algorithm that TCP connections over the link really used, per side. */
  tcp_congestion: z.looseObject({ near: z.string(), far: z.string() }),
  /** Other kernel parameters of TCP, per side. Absent in older reports. */
  tcp_settings: z.looseObject({ near: parameters, far: parameters }).optional(),
  kept_deadlines: z.boolean(),
  /** Of both directions together. */
  lateness_us: lateness,
  /** Lateness from which on a packet counts as late. Absent in older reports. */
  lateness_bound_us: z.number().optional(),
  /**
   * For the load alone, from the start of its navigation to its end. Null if no load was announced
   * to the link.
   */
  machine: machine.nullable(),
  hystart: hystart.nullable(),
  /** When the load sent its first packet, in seconds after the link went live. */
  time_zero_seconds: orNull,
  cpu_seconds: z.looseObject({ emulator: cpu, process: cpu }),
  commands: z
    .looseObject({
      near: command.optional(),
      far: command.nullable(),
      warm_ups: z.array(command.extend({ exit_code: z.number().nullable() })).optional(),
    })
    .nullish(),
});

/**
 * Drops the command lines: the lab made them, and they are full of paths that no longer exist when
 * a sample is read.
 */
const report = whole.transform(({ commands, ...all }) => {
  const far = commands?.far?.cpu_seconds;
  const every = [commands?.near, commands?.far, ...(commands?.warm_ups ?? [])].flatMap(
    (each) => each ?? [],
  );
  const { process: emulator } = all.cpu_seconds;
  const sum = ({ user, system }: z.infer<typeof cpu>): number => user + system;
  return {
    ...all,
    /** Processor time of the command at the far end and its children. */
    ...(far && { far_cpu_seconds: sum(far) }),
    /** Processor time of the link and all commands. */
    ...(commands && {
      total_cpu_seconds: every.reduce((so, each) => so + sum(each.cpu_seconds), sum(emulator)),
    }),
    /** Result of each warm-up; null for one that a signal ended. */
    ...(commands?.warm_ups && {
      warm_up_exit_codes: commands.warm_ups.map(({ exit_code: code }) => code),
    }),
  };
});

/**
 * The report of `pronghorn link` without its commands. Keys that the lab does not use are kept
 * unchanged.
 */
export type LinkReport = z.infer<typeof report>;
export type LinkDirection = z.infer<typeof direction>;

/** A report, or why there is none. */
export type LinkReading =
  | { readonly kind: 'report'; readonly report: LinkReport }
  | { readonly kind: 'problem'; readonly problem: string };

/** Reads the report file. */
export function readLinkReport(path: string): LinkReading {
  let raw: unknown;
  try {
    raw = JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return { kind: 'problem', problem: 'no report from the link' };
  }
  const result = report.safeParse(raw);
  if (result.success) return { kind: 'report', report: result.data };
  const issue = result.error.issues[0];
  const where = issue?.path.join('.') ?? '';
  return {
    kind: 'problem',
    problem: `invalid report from the link: ${where}: ${issue?.message ?? ''}`,
  };
}

export interface FlowBytes {
  readonly up: number;
  readonly down: number;
}

/**
 * Sums the bytes of all flows to one of the server's ports, as IP packets that entered the link;
 * fragments count for any port.
 */
export function flowBytes(link: LinkReport, protocol: 'tcp' | 'udp', farPort: number): FlowBytes {
  return link.flows
    .filter(
      (each) => each.protocol === protocol && (each.far_port === farPort || each.far_port === null),
    )
    .reduce((sum, each) => ({ up: sum.up + each.up.bytes, down: sum.down + each.down.bytes }), {
      up: 0,
      down: 0,
    });
}

/** Counts packets that the link carried but could not assign to a flow. */
export function unaccountedPackets({ flows_beyond_table: beyond, unparsed }: LinkReport): number {
  return [beyond.up, beyond.down, unparsed.up, unparsed.down].reduce(
    (sum, { packets }) => sum + packets,
    0,
  );
}

/** Counts packets of one direction that were lost other than by the profile. */
export function unaskedDrops(one: LinkDirection): number {
  return one.tun_drops + one.packets_overflowed + one.packets_oversized + one.packets_write_failed;
}
