import { markdownTable } from './markdown-table.js';
import { html, prose, type Html } from './html.js';
import { scrollingTable, textRow } from './scrolling-table.js';
import type { Sample } from '../samples/sample.js';
import { REHEARSAL } from '../campaign/schedule.js';

/**
 * What bound a load: waiting for the network, computing, or both; `unknown` if too little was
 * recorded.
 */
export const BOUNDS = ['network', 'cpu', 'mixed', 'unknown'] as const;
export type Bound = (typeof BOUNDS)[number];

/**
 * Minimum share at which a processor used by one process, all processors together, or the link
 * count as busy.
 */
const CPU_BUSY = 0.85;
const LINK_BUSY = 0.9;
/** If every process is below this share, the remaining time is waiting for round trips. */
const CPU_IDLE = 0.5;

/** What a load used, as shares of its time. */
export interface Use {
  /** Time from the start of navigation to the end of the load. */
  readonly seconds: number;
  /** Processor seconds. For a repeat visit, server and link have half of what both visits took. */
  readonly server: number | undefined;
  readonly link: number | undefined;
  readonly browser: number | undefined;
  /**
   * Largest share of one processor that one process used. The browser's process types count
   * separately.
   */
  readonly busiestShare: number | undefined;
  /** Share of all processors. */
  readonly allShare: number | undefined;
  /**
   * Share of time in which the downlink was sending, by its rate; undefined for a link without one.
   */
  readonly linkShare: number | undefined;
}

/**
 * Computes the use of a load from its sample; undefined if the load has no end. `cpus` is the
 * machine's number of processors.
 */
export function useOf(
  { times, cpuSeconds, browser, link, visit }: Sample,
  cpus: number,
): Use | undefined {
  const seconds = times.load ?? times.lastByte;
  if (seconds === undefined) return undefined;
  const visits = visit === 'first' ? 1 : 2;
  const perVisit = (value: number | undefined): number | undefined =>
    value === undefined ? undefined : value / visits;
  const kinds = Object.values(cpuSeconds?.browser ?? browser?.cpuSeconds ?? {}) as number[];
  const [server, emulator] = [perVisit(cpuSeconds?.server), perVisit(cpuSeconds?.link)];
  const taken = [server, emulator, ...kinds].filter((value) => value !== undefined);
  const rate = link?.down.asked.rate_mbit_per_second ?? undefined;
  const sent = link === undefined ? 0 : Math.max(0, link.down.bytes_in - queueDropped(link.down));
  return {
    seconds,
    server,
    link: emulator,
    browser: kinds.length === 0 ? undefined : sum(kinds),
    busiestShare: kinds.length === 0 ? undefined : Math.max(...taken) / seconds,
    allShare: kinds.length === 0 ? undefined : sum(taken) / seconds / cpus,
    linkShare: rate === undefined ? undefined : (sent * 8) / 1e6 / rate / visits / seconds,
  };
}

/** Returns the bytes of packets that the full queue dropped, which did not use the rate. */
function queueDropped(down: NonNullable<Sample['link']>['down']): number {
  const bytes: unknown = down.bytes_queue_dropped;
  return typeof bytes === 'number' ? bytes : 0;
}

/**
 * Returns what bound a load.
 *
 * - `cpu`: one process used more than 85 % of a processor, or all together more than 85 % of all,
 *   and the link was not busy.
 * - `network`: the link was sending for more than 90 % of the time; or no process used half a
 *   processor, so the time went into waiting for round trips.
 * - `mixed`: both, or something in between.
 */
export function boundOf(use: Use | undefined): Bound {
  if (use?.busiestShare === undefined || use.allShare === undefined) return 'unknown';
  const computing = use.busiestShare > CPU_BUSY || use.allShare > CPU_BUSY;
  const sending = (use.linkShare ?? 0) > LINK_BUSY;
  if (computing) return sending ? 'mixed' : 'cpu';
  return sending || use.busiestShare < CPU_IDLE ? 'network' : 'mixed';
}

/** Use of the loads of one cell. */
export interface CellUse {
  readonly profile: string;
  readonly page: string;
  readonly arm: string;
  /** Number of valid loads with an end. */
  readonly loads: number;
  readonly bounds: Readonly<Record<Bound, number>>;
  /** Median milliseconds of processor time per load. */
  readonly cpuMs: Readonly<Record<'server' | 'browser' | 'link', number | undefined>>;
  /** Median share. */
  readonly busiestShare: number | undefined;
  readonly linkShare: number | undefined;
}

/** Reduces samples to the use of each cell, in the order in which the cells first occur. */
export async function usePerCell(samples: AsyncIterable<Sample>, cpus: number): Promise<CellUse[]> {
  const cells = new Map<
    string,
    { readonly sample: Pick<Sample, 'profile' | 'page' | 'arm'>; readonly uses: Use[] }
  >();
  for await (const sample of samples) {
    const use = sample.valid && sample.block !== REHEARSAL ? useOf(sample, cpus) : undefined;
    if (use === undefined) continue;
    const { profile, page, arm } = sample;
    const key = `${profile}\n${page}\n${arm}`;
    const cell = cells.get(key) ?? { sample: { profile, page, arm }, uses: [] };
    cell.uses.push(use);
    cells.set(key, cell);
  }
  return [...cells.values()].map(({ sample, uses }) => cellUse(sample, uses));
}

function cellUse(cell: Pick<Sample, 'profile' | 'page' | 'arm'>, uses: readonly Use[]): CellUse {
  const bounds = { network: 0, cpu: 0, mixed: 0, unknown: 0 };
  for (const use of uses) bounds[boundOf(use)] += 1;
  const middle = (pick: (use: Use) => number | undefined, factor = 1): number | undefined => {
    const value = median(uses.map(pick).filter((each) => each !== undefined));
    return value === undefined ? undefined : value * factor;
  };
  return {
    ...cell,
    loads: uses.length,
    bounds,
    cpuMs: {
      server: middle(({ server }) => server, 1000),
      browser: middle(({ browser }) => browser, 1000),
      link: middle(({ link }) => link, 1000),
    },
    busiestShare: middle(({ busiestShare }) => busiestShare),
    linkShare: middle(({ linkShare }) => linkShare),
  };
}

export const USE_HEAD = [
  ...[
    'profile',
    'page',
    'arm',
    'bound by',
    'server, ms',
    'browser, ms',
    'link, ms',
    'busiest process',
    'link sending',
  ],
  'loads',
];
/** Number of columns that are names. */
export const USE_NAMES = 4;

/** Returns one row per cell. */
export function useRows(cells: readonly CellUse[]): string[][] {
  return cells.map(({ profile, page, arm, bounds, cpuMs, busiestShare, linkShare, loads }) => [
    ...[profile, page, arm, describeBounds(bounds, loads)],
    ...[cpuMs.server, cpuMs.browser, cpuMs.link].map((value) => value?.toFixed(0) ?? '–'),
    ...[busiestShare, linkShare].map((share) =>
      share === undefined ? '–' : `${(100 * share).toFixed(0)} %`,
    ),
    String(loads),
  ]);
}

/** Returns "network", or "network 80 %, mixed 20 %". */
function describeBounds(bounds: CellUse['bounds'], loads: number): string {
  const those = BOUNDS.filter((bound) => bounds[bound] > 0);
  if (those.length === 1) return those[0] as string;
  return those
    .map((bound) => `${bound} ${((100 * bounds[bound]) / loads).toFixed(0)} %`)
    .join(', ');
}

export const USE_NOTES = [
  'Medians of processor time per load: of the server and of the emulated link while they ran, of the browser from the start of navigation. For a ' +
    'repeat visit, server and link have half of what both visits took.',
  'Bound by cpu: one process used more than 85 % of a processor, or all together more than 85 % of all. By the network: the link was sending ' +
    'for more than 90 % of the time, or no process used half a processor, so the time is waiting for round trips. Mixed: both, or in between.',
] as const;

/** Returns the use of each cell in Markdown. */
export function useMarkdown(cells: readonly CellUse[]): string {
  const notes = USE_NOTES.map((note) => `- ${note}`).join('\n');
  return `${markdownTable(USE_HEAD, useRows(cells), USE_NAMES)}\n\n${notes}\n`;
}

/** Returns the use of each cell as a report section. */
export function useSection(cells: readonly CellUse[]): Html {
  const rows = useRows(cells).map((row) => textRow(row, USE_NAMES));
  return html`<section id="processors">
    <h2>Processor time and what bound the loads</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of processor time', head: USE_HEAD, names: USE_NAMES, rows })}
      ${USE_NOTES.map((note) => html`<p class="soft small">${prose(note)}</p>`)}
    </div>
  </section>`;
}

function sum(values: readonly number[]): number {
  return values.reduce((so, value) => so + value, 0);
}

function median(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [
    sorted[Math.ceil(sorted.length / 2) - 1],
    sorted[Math.floor(sorted.length / 2)],
  ];
  return low === undefined || high === undefined ? undefined : (low + high) / 2;
}
