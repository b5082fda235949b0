import { z } from 'zod';
import { CONGESTION_CONTROLS, type Congestion } from '../campaign/plan.js';
import { energyDistance, type Point } from './distance.js';

export const BULK_PROTOCOLS = ['h2', 'h3'] as const;
export type BulkProtocol = (typeof BULK_PROTOCOLS)[number];

const second = z.object({
  throughputMbit: z.number(),
  queueDelayMs: z.number(),
  lostPackets: z.number(),
});

const transfer = z.object({
  congestion: z.enum(CONGESTION_CONTROLS),
  protocol: z.enum(BULK_PROTOCOLS),
  /** Starts at 1. */
  repeat: z.number(),
  /** Seed of the link; the same for both protocols of a repeat. */
  linkSeed: z.number(),
  valid: z.boolean(),
  invalidReasons: z.array(z.string()),
  shape: z.object({
    seconds: z.number(),
    throughputMbit: z.number(),
    queueDelayMs: z.object({ p5: z.number(), p50: z.number(), p95: z.number(), mean: z.number() }),
    lostPercent: z.number(),
    firstSecondMbit: z.number(),
    initialWindow: z.object({ packets: z.number(), bytes: z.number() }).optional(),
    windows: z.array(second),
  }),
});

/** One bulk download over the fixed link. */
export type Transfer = z.infer<typeof transfer>;

const range = z.object({ median: z.number(), min: z.number(), max: z.number() });
export type Range = z.infer<typeof range>;

const side = z.object({
  transfers: z.number(),
  throughputMbit: range,
  queueDelayMs: range,
  lostPercent: range,
  firstSecondMbit: range,
  initialWindowBytes: range.optional(),
  initialWindowPackets: range.optional(),
  /**
   * Distance between transfers of this protocol, the spread of repeated measurements. Absent for a
   * single transfer.
   */
  within: range.optional(),
});
export type Side = z.infer<typeof side>;

const controller = z.object({
  congestion: z.enum(CONGESTION_CONTROLS),
  h2: side.optional(),
  h3: side.optional(),
  /** Distance between each transfer over TCP and each over QUIC. */
  distance: range.optional(),
  verdict: z.enum(['alike', 'apart', 'unknown']),
});

/** A controller over TCP and over QUIC. */
export type Controller = z.infer<typeof controller>;

export const conformanceSchema = z.object({
  schema: z.literal('pronghorn-lab-conformance/1'),
  status: z.enum(['running', 'finished', 'interrupted']),
  startedAt: z.string(),
  seed: z.number(),
  repeats: z.number(),
  /** Duration of a transfer that fills the link. */
  seconds: z.number(),
  link: z.object({
    name: z.string(),
    sha256: z.string(),
    rateMbit: z.number(),
    /** Time that a packet waits behind a full queue. */
    queueMs: z.number(),
  }),
  pronghorn: z.object({ version: z.string(), sha256: z.string() }),
  system: z.string(),
  /** Whether other campaigns could measure on the machine at the same time. */
  sharedMachine: z.literal(true).optional(),
  transfers: z.array(transfer),
  controllers: z.array(controller),
});

/** The contents of `conformance.json`. */
export type Conformance = z.infer<typeof conformanceSchema>;

/**
 * Maximum distance of controllers that count as alike: a tenth of the link's rate, or of its full
 * queue.
 */
export const ALIKE_WITHIN = 0.1;

/**
 * Compares the two versions of each controller. A repeat with an invalid transfer does not count at
 * all: otherwise disturbances would exclude mostly the transfers of the transport with more packets
 * or more processor time.
 */
export function compareControllers(
  transfers: readonly Transfer[],
  link: Conformance['link'],
): Controller[] {
  const controllers = [...new Set(transfers.map(({ congestion }) => congestion))];
  return controllers.map((congestion) => compareOne(congestion, transfers, link));
}

function compareOne(
  congestion: Congestion,
  transfers: readonly Transfer[],
  link: Conformance['link'],
): Controller {
  const own = transfers.filter((each) => each.congestion === congestion);
  const broken = new Set(own.flatMap(({ valid, repeat }) => (valid ? [] : [repeat])));
  const of = (protocol: BulkProtocol): Transfer[] =>
    own.filter((each) => each.protocol === protocol && !broken.has(each.repeat));
  const [h2, h3] = [of('h2'), of('h3')];
  const clouds = (those: readonly Transfer[]): Point[][] =>
    those.map((each) => pointsOf(each, link));
  const [tcp, quic] = [clouds(h2), clouds(h3)];
  const cross = tcp.flatMap((one) => quic.map((other) => energyDistance(one, other)));
  const sides = { h2: sideOf(h2, tcp), h3: sideOf(h3, quic) };
  const distance = rangeOf(cross);
  return {
    congestion,
    ...(sides.h2 && { h2: sides.h2 }),
    ...(sides.h3 && { h3: sides.h3 }),
    ...(distance && { distance }),
    verdict: verdictOf(distance, sides.h2?.within, sides.h3?.within),
  };
}

/**
 * Returns the verdict. `alike`: TCP and QUIC differ by no more than {@link ALIKE_WITHIN}, or than
 * two transfers of one of them. Without a second transfer of both, that spread is unknown and there
 * is no verdict.
 */
function verdictOf(
  distance: Range | undefined,
  tcp: Range | undefined,
  quic: Range | undefined,
): Controller['verdict'] {
  if (distance === undefined || tcp === undefined || quic === undefined) return 'unknown';
  return distance.median <= Math.max(ALIKE_WITHIN, tcp.max, quic.max) ? 'alike' : 'apart';
}

/** Returns the seconds of a transfer as shares of the link's rate and of its full queue. */
export function pointsOf({ shape }: Transfer, { rateMbit, queueMs }: Conformance['link']): Point[] {
  return shape.windows.map(({ throughputMbit, queueDelayMs }) => ({
    throughput: throughputMbit / rateMbit,
    delay: queueDelayMs / queueMs,
  }));
}

function sideOf(transfers: readonly Transfer[], clouds: readonly Point[][]): Side | undefined {
  const of = (pick: (shape: Transfer['shape']) => number | undefined): Range | undefined =>
    rangeOf(transfers.map(({ shape }) => pick(shape)));
  const throughputMbit = of((shape) => shape.throughputMbit);
  const queueDelayMs = of((shape) => shape.queueDelayMs.p50);
  const lostPercent = of((shape) => shape.lostPercent);
  const firstSecondMbit = of((shape) => shape.firstSecondMbit);
  if (!throughputMbit || !queueDelayMs || !lostPercent || !firstSecondMbit) return undefined;
  const initialWindowBytes = of((shape) => shape.initialWindow?.bytes);
  const initialWindowPackets = of((shape) => shape.initialWindow?.packets);
  const within = rangeOf(
    clouds.flatMap((one, at) => clouds.slice(at + 1).map((other) => energyDistance(one, other))),
  );
  return {
    transfers: transfers.length,
    ...{ throughputMbit, queueDelayMs, lostPercent, firstSecondMbit },
    ...(initialWindowBytes && { initialWindowBytes }),
    ...(initialWindowPackets && { initialWindowPackets }),
    ...(within && { within }),
  };
}

/** Returns median, minimum and maximum of the known values. */
function rangeOf(values: readonly (number | undefined)[]): Range | undefined {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  const [low, high] = [
    sorted[Math.ceil(sorted.length / 2) - 1],
    sorted[Math.floor(sorted.length / 2)],
  ];
  if (low === undefined || high === undefined) return undefined;
  return { median: (low + high) / 2, min: sorted[0] as number, max: sorted.at(-1) as number };
}
