import { randomFillSync } from 'node:crypto';
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { PORT } from '../run/browser.js';
import { makeCertificate, type Certificate } from '../run/certificate.js';
import { requireDisk } from '../io/disk.js';
import { environment } from '../campaign/environment.js';
import { ExitCode, LabError } from '../io/errors.js';
import {
  FAR_ADDRESS,
  kernelName,
  lastWords,
  linkCommand,
  start,
  stop,
  type Ended,
} from '../run/link-command.js';
import { readLinkReport, unaskedDrops, type LinkReport } from '../run/link-report.js';
import type { Arm, Congestion, ServerSpec } from '../campaign/plan.js';
import type { Pronghorn } from '../run/programs.js';
import { deriveSeed, generator, shuffled } from '../campaign/seed.js';
import { removeFolder } from '../io/scratch.js';
import { DEFAULT_INITIAL_WINDOW, shellWords } from '../run/server-command.js';
import { readPackets } from '../trace/packets.js';
import {
  BULK_PROTOCOLS,
  compareControllers,
  type Conformance,
  type Transfer,
} from './conformance.js';
import { conformanceLink, type FixedLink } from './link.js';
import { shapeOf } from './transfer.js';

export interface ConformanceOptions {
  readonly pronghorn: Pronghorn;
  readonly congestion: readonly Congestion[];
  /** Number of transfers per controller and protocol. */
  readonly repeats: number;
  /** Duration of a transfer that fills the link, in seconds. */
  readonly seconds: number;
  readonly seed: number;
  /** Whether other campaigns may measure on the machine at the same time. */
  readonly sharedMachine?: boolean;
  /** The machine's lock, inherited by every process of a transfer. */
  readonly machineLock?: number;
  /** Folder for temporary files; the system's by default. */
  readonly within?: string;
  /** Aborted to end the check; the transfers so far are kept. */
  readonly signal: AbortSignal;
  /** Called with the state after each transfer, and at the end. */
  readonly onProgress?: (so: Conformance, transfer: Transfer | undefined) => void;
}

/** Minimum duration that leaves whole seconds to compare after the first. */
export const MIN_SECONDS = 3;
const OVERHEAD_SECONDS = 30;
const FILE = 'bulk.bin';

/**
 * Returns the controllers that a campaign's arms use with our own server, which `checkConformance`
 * has to cover.
 */
export function controllersOf(arms: readonly Arm[], servers: readonly ServerSpec[]): Congestion[] {
  const ours = servers
    .filter(({ command, reference }) => command === undefined && reference === undefined)
    .map(({ name }) => name);
  return [
    ...new Set(
      arms.filter(({ server }) => ours.includes(server)).map(({ congestion }) => congestion),
    ),
  ];
}

/**
 * Downloads a large file over a fixed link with each controller over TCP and over QUIC, and
 * computes how far the two versions of each are apart. Program and server are the campaign's own;
 * the client is `pronghorn get`, since only the sender is compared.
 */
export async function checkConformance(options: ConformanceOptions): Promise<Conformance> {
  const { pronghorn, repeats, seconds, seed, machineLock, signal } = options;
  const link = conformanceLink();
  const { system, pronghornSha256 } = environment('', pronghorn);
  const scratch = mkdtempSync(join(options.within ?? tmpdir(), 'pronghorn-lab-conformance-'));
  let so: Conformance = {
    schema: 'pronghorn-lab-conformance/1',
    status: 'running',
    startedAt: new Date().toISOString(),
    ...{ seed, repeats, seconds, link: link.facts },
    pronghorn: { version: pronghorn.version, sha256: pronghornSha256 },
    system,
    ...(options.sharedMachine && { sharedMachine: true as const }),
    transfers: [],
    controllers: [],
  };
  try {
    const bench = {
      ...{ pronghorn: pronghorn.path, link, scratch, signal, seconds, machineLock },
      certificate: makeCertificate(scratch, FAR_ADDRESS),
      site: writeSite(scratch, (link.facts.rateMbit * 1e6 * seconds) / 8),
    };
    for (const planned of schedule(options)) {
      const transfer = signal.aborted ? undefined : await runTransfer(bench, planned);
      if (transfer === undefined) return finish(so, 'interrupted', options);
      const transfers = [...so.transfers, transfer];
      so = { ...so, transfers, controllers: compareControllers(transfers, link.facts) };
      options.onProgress?.(so, transfer);
    }
    return finish(so, 'finished', options);
  } finally {
    await removeFolder(scratch);
  }
}

function finish(
  so: Conformance,
  status: Conformance['status'],
  { onProgress }: ConformanceOptions,
): Conformance {
  const ended = { ...so, status };
  onProgress?.(ended, undefined);
  return ended;
}

type Planned = Pick<Transfer, 'congestion' | 'protocol' | 'repeat' | 'linkSeed'>;

/**
 * Schedules each controller over each protocol once per repeat, in an order drawn from the seed.
 */
function schedule({ congestion, repeats, seed }: ConformanceOptions): Planned[] {
  return Array.from({ length: repeats }, (_, at) => {
    const repeat = at + 1;
    const round = congestion.flatMap((each) => {
      const linkSeed = deriveSeed(seed, 'conformance', each, repeat);
      return BULK_PROTOCOLS.map((protocol): Planned => ({
        congestion: each,
        protocol,
        repeat,
        linkSeed,
      }));
    });
    return shuffled(round, generator(deriveSeed(seed, 'conformance-order', repeat)));
  }).flat();
}

interface TransferBench {
  readonly pronghorn: string;
  readonly link: FixedLink;
  readonly certificate: Certificate;
  readonly site: string;
  readonly scratch: string;
  readonly seconds: number;
  readonly machineLock: number | undefined;
  readonly signal: AbortSignal;
}

/** Runs a transfer; undefined if interrupted. */
async function runTransfer(bench: TransferBench, planned: Planned): Promise<Transfer | undefined> {
  const { link, scratch, signal, seconds, machineLock } = bench;
  const folder = mkdtempSync(join(scratch, 'transfer-'));
  const files = {
    report: join(folder, 'link.json'),
    output: join(folder, 'output.txt'),
    packets: join(folder, 'packets.csv'),
    tcpInfo: join(folder, 'tcp-info.csv'),
  };
  const running = start(commandOf(bench, planned, folder, files), files.output, machineLock);
  const onAbort = (): void => void stop(running);
  signal.addEventListener('abort', onAbort, { once: true });
  const limit = setTimeout(onAbort, (4 * seconds + OVERHEAD_SECONDS) * 1000);
  const ended = await running.ended;
  clearTimeout(limit);
  signal.removeEventListener('abort', onAbort);
  if (signal.aborted) return undefined;
  const output = readFileSync(files.output, 'utf8');
  if (ended.kind !== 'exit' || ended.code !== 0) requireDisk(output, dirname(scratch));
  requireWell(ended, planned, output);
  const reading = readLinkReport(files.report);
  if (reading.kind === 'problem') throw new LabError(ExitCode.Unavailable, reading.problem);
  const packets = await readPackets(files.packets, 0);
  await removeFolder(folder);
  const invalidReasons = reasonsAgainst(reading.report, planned);
  const { initialWindow, ...shape } = shapeOf(
    packets,
    planned.protocol === 'h3' ? 'udp' : 'tcp',
    link.facts.rateMbit,
  );
  return {
    ...planned,
    valid: invalidReasons.length === 0,
    invalidReasons,
    shape: { ...shape, windows: [...shape.windows], ...(initialWindow && { initialWindow }) },
  };
}

function commandOf(
  { pronghorn, link, certificate, site, seconds }: TransferBench,
  { congestion, protocol, linkSeed }: Planned,
  folder: string,
  files: Readonly<Record<'report' | 'packets' | 'tcpInfo', string>>,
): string[] {
  const server = [
    ...[pronghorn, 'serve', site, '--listen', `${FAR_ADDRESS}:${PORT}`],
    ...['--cert', certificate.certPath, '--key', certificate.keyPath],
    ...[
      '--congestion',
      congestion,
      '--initial-window',
      String(DEFAULT_INITIAL_WINDOW),
      '--grace',
      '1',
      '--quiet',
    ],
  ];
  const client = [
    ...[
      pronghorn,
      'get',
      '--http',
      protocol === 'h3' ? '3' : '2',
      '--no-verify',
      '--congestion',
      congestion,
    ],
    ...['--timeout', String(4 * seconds + OVERHEAD_SECONDS), '--output', join(folder, 'content')],
    `https://${FAR_ADDRESS}:${PORT}/${FILE}`,
  ];
  return linkCommand({
    ...{ pronghorn, profilePath: link.path, seed: linkSeed, congestion, reportPath: files.report },
    // As in a campaign, though a transfer without a pause does not depend on it.
    slowStartAfterIdle: false,
    traces: { packets: files.packets, tcpInfo: files.tcpInfo },
    far: shellWords(server),
    farPort: PORT,
    near: client,
  });
}

/** Number of a failed transfer's output lines that are shown. */
const MAX_OUTPUT_LINES = 20;

/** Exit codes of `pronghorn link` that the lab passes on. */
const FORWARDED_EXIT_CODES: readonly number[] = [
  ExitCode.Malformed,
  ExitCode.InputMissing,
  ExitCode.NotPermitted,
];

function requireWell(ended: Ended, { congestion, protocol }: Planned, output: string): void {
  if (ended.kind === 'exit' && ended.code === 0) return;
  const handedOn =
    ended.kind === 'exit' ? FORWARDED_EXIT_CODES.find((code) => code === ended.code) : undefined;
  const { word, before } = lastWords(output, MAX_OUTPUT_LINES);
  const reason = ended.kind === 'unstartable' ? ended.reason : word.replace(/^error: /i, '');
  throw new LabError(
    (handedOn as ExitCode | undefined) ?? ExitCode.Unavailable,
    `the transfer over ${protocol} with ${congestion} failed: ${reason}`,
    undefined,
    before,
  );
}

/** Returns the link's reasons why a transfer is invalid. */
function reasonsAgainst(report: LinkReport, { congestion }: Planned): string[] {
  const { near, far } = report.tcp_congestion;
  const asked = kernelName(congestion);
  const drops = unaskedDrops(report.up) + unaskedDrops(report.down);
  return [
    ...(report.kept_deadlines ? [] : ['the link missed its deadlines']),
    ...(drops === 0 ? [] : [`${drops} packets were lost at the link's devices`]),
    ...(near === asked && far === asked ? [] : [`TCP used ${near} and ${far}, not ${asked}`]),
  ];
}

const PIECE = 1 << 20;

/** Creates a folder with one incompressible file of the given size. */
function writeSite(scratch: string, bytes: number): string {
  const site = join(scratch, 'site');
  mkdirSync(site);
  const file = openSync(join(site, FILE), 'w');
  try {
    for (let left = Math.ceil(bytes); left > 0; left -= PIECE) {
      writeSync(file, randomFillSync(Buffer.alloc(Math.min(PIECE, left))));
    }
  } finally {
    closeSync(file);
  }
  return site;
}
