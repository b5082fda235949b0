import { median } from 'd3-array';
import type { Campaign } from '../campaign/campaign-file.js';
import {
  compareCampaign,
  METRICS,
  type CampaignComparisons,
  type ComparedCell,
  type Metric,
} from '../compare/compare-campaign.js';
import { partnerOf } from '../compare/partners.js';
import {
  MIN_PACKETS_FOR_P99,
  unaskedDrops,
  type LinkDirection,
  type LinkReport,
} from '../run/link-report.js';
import { lookOf, SHORT_LOOK_MS } from '../samples/look.js';
import type { MachineCpu } from '../run/machine-cpu.js';
import type { Protocol } from '../campaign/plan.js';
import type { Outcome, Sample, Times } from '../samples/sample.js';
import { REHEARSAL } from '../campaign/schedule.js';
import { twoModes, type TwoModes } from '../statistics/modes.js';
import { nearestRank, summarise, type Summary } from '../statistics/figures.js';
import type { Label, LabelKind } from '../trace/label.js';
import { summariseLabels } from '../trace/labels.js';

/** The part of a load that tables and plots need. The timings of its requests stay in the file. */
export interface LoadResult {
  readonly load: number;
  readonly block: number;
  readonly outcome: Outcome;
  readonly reason: string | undefined;
  /** The reason without load-specific parts; undefined for a completed load. */
  readonly fault: string | undefined;
  readonly valid: boolean;
  readonly invalidReasons: readonly string[];
  /**
   * Whether the load is invalid only because of its round: the machine was starved, or the link
   * late.
   */
  readonly isRoundOnly: boolean;
  /** Whether a larger paint came too late to count. */
  readonly hasLatePaint: boolean;
  /** Seconds, for a completed load. */
  readonly time: number | undefined;
  /**
   * Compared times in seconds; Infinity if never reached, undefined if the browser does not report
   * it.
   */
  readonly metrics: Readonly<Record<Metric, number | undefined>>;
}

/** All loads of one arm on one profile and page. */
export interface Cell {
  readonly profile: string;
  readonly page: string;
  readonly arm: string;
  /** The arm of which this one is a copy (A/A). */
  readonly repeats?: string;
  /** The arm that this one is compared with, null for none. */
  readonly comparedWith?: string | null;
  readonly protocol: Protocol | undefined;
  readonly loads: readonly LoadResult[];
  /** Listed if they failed, but never counted. */
  readonly rehearsals: readonly LoadResult[];
  readonly summary: Summary;
  readonly invalid: number;
  /** The valid load at the (lower) median, for the waterfall. */
  readonly medianLoad: number | undefined;
  /** Set if the valid loads' times have two modes. */
  readonly modes: TwoModes | undefined;
  readonly congestion: CongestionSeen;
  /** Paints counted until this long after the start of the load event. */
  readonly lookMs: number;
  /** Number of valid loads with a larger paint after that. */
  readonly latePaints: number;
  /** Number of valid loads that the rules could examine. */
  readonly looked: number;
  /** Findings of the rules in the valid loads, by kind; kinds without any are absent. */
  readonly labels: ReadonlyMap<LabelKind, LabelShare>;
}

/** One kind of label in the loads of a cell. */
export interface LabelShare {
  readonly loads: number;
  /** Median cost over the loads that have the label. */
  readonly medianSeconds: number;
  readonly mostSeconds: number;
}

/**
 * Congestion control in force, as reported by each side. More than one value would be a finding.
 */
export interface CongestionSeen {
  readonly serverTcp: readonly string[];
  readonly clientTcp: readonly string[];
  readonly clientQuic: readonly string[];
}

/** Settings of a profile's link and what it achieved over all loads of the campaign. */
export interface LinkAchieved {
  readonly profile: string;
  readonly up: DirectionAchieved;
  readonly down: DirectionAchieved;
}

export interface DirectionAchieved {
  readonly asked: LinkDirection['asked'] | undefined;
  readonly packets: number;
  readonly lost: number;
  readonly queueDropped: number;
  readonly unaskedDrops: number;
  /** Worst 99th percentile of the loads with at least 100 packets; undefined if there are none. */
  readonly worstP99LatenessUs: number | undefined;
}

/** Number of loads during which others measured, and number of all loads. */
export interface Beside {
  readonly loads: number;
  readonly beside: number;
}

/**
 * Shares of the machine's processors that others used in the measured loads, and the part that a
 * virtual machine's host took.
 */
export interface MachineAchieved {
  readonly loads: number;
  readonly medianOthersShare: number;
  readonly mostOthersShare: number;
  readonly mostStealShare: number;
}

/** Number of valid loads of a server, and of those before which it was not warmed. */
export interface Cold {
  readonly loads: number;
  readonly cold: number;
}

export interface Results {
  readonly shared: Beside;
  /** By server, the loads that counted although the server answered nothing before them. */
  readonly cold: ReadonlyMap<string, Cold>;
  readonly cells: readonly Cell[];
  readonly links: readonly LinkAchieved[];
  /** Kernel parameters of TCP inside the links, by name; several values if arms or ends differ. */
  readonly tcpSettings: ReadonlyMap<string, readonly string[]>;
  /** Undefined if no load has it. */
  readonly machine: MachineAchieved | undefined;
  readonly comparisons: CampaignComparisons;
}

/**
 * Reduces samples, one at a time, to the contents of a campaign's tables and plots, in the order of
 * the plan.
 */
export async function collectResults(
  campaign: Campaign,
  samples: AsyncIterable<Sample>,
): Promise<Results> {
  const builders = new Map<string, CellBuilder>();
  const links = new Map<string, LinkBuilder>();
  const tcpSettings = new Map<string, Set<string>>();
  const machines: MachineCpu[] = [];
  for (const { name: profile } of campaign.profiles) {
    links.set(profile, new LinkBuilder(profile));
    for (const { name: page } of campaign.pages) {
      for (const arm of campaign.arms) {
        const partner = partnerOf(arm, campaign.arms, campaign.baseline) ?? null;
        builders.set(keyOf(profile, page, arm.name), new CellBuilder(profile, page, arm, partner));
      }
    }
  }
  let shared: Beside = { loads: 0, beside: 0 };
  const warmth = new Map<string, Cold>();
  for await (const sample of samples) {
    shared = {
      loads: shared.loads + 1,
      beside: shared.beside + ((sample.otherCampaigns ?? 0) > 0 ? 1 : 0),
    };
    builders.get(keyOf(sample.profile, sample.page, sample.arm))?.add(sample);
    if (sample.block !== REHEARSAL && sample.valid) {
      const { loads, cold } = warmth.get(sample.server) ?? { loads: 0, cold: 0 };
      warmth.set(sample.server, { loads: loads + 1, cold: cold + (isCold(sample) ? 1 : 0) });
    }
    if (sample.link) links.get(sample.profile)?.add(sample.link);
    if (sample.block !== REHEARSAL && sample.machine) machines.push(sample.machine);
    for (const end of Object.values(sample.link?.tcp_settings ?? {})) {
      for (const [name, value] of Object.entries(end as Record<string, string>)) {
        tcpSettings.set(name, (tcpSettings.get(name) ?? new Set()).add(value));
      }
    }
  }
  const cells = [...builders.values()].map((builder) => builder.cell());
  return {
    shared,
    cold: new Map([...warmth].filter(([, { cold }]) => cold > 0)),
    cells,
    links: [...links.values()].map((builder) => builder.achieved()),
    tcpSettings: new Map([...tcpSettings].map(([name, values]) => [name, [...values]])),
    machine: machineAchieved(machines),
    comparisons: compareCampaign(cellsToCompare(cells), campaign.baseline, campaign.seed),
  };
}

function isCold({ warmUps = [] }: Sample): boolean {
  return warmUps.length > 0 && warmUps.every(({ ok }) => !ok);
}

function machineAchieved(loads: readonly MachineCpu[]): MachineAchieved | undefined {
  const others = loads.flatMap(({ othersShare }) => othersShare ?? []);
  if (others.length === 0) return undefined;
  return {
    loads: others.length,
    medianOthersShare: median(others) ?? 0,
    mostOthersShare: Math.max(...others),
    mostStealShare: Math.max(...loads.map(({ stealShare }) => stealShare)),
  };
}

/** Returns whether there are several pages to distinguish. */
export function severalPages(cells: readonly Pick<Cell, 'page'>[]): boolean {
  return new Set(cells.map(({ page }) => page)).size > 1;
}

/** Returns the cells for comparison; a single page needs no name. */
function cellsToCompare(cells: readonly Cell[]): ComparedCell[] {
  const several = severalPages(cells);
  return cells.map((cell) => {
    const { page, ...rest } = comparedCell(cell);
    return { ...rest, ...(several && page !== undefined && { page }) };
  });
}

/** Returns the valid loads of a cell by metric. */
export function comparedCell({
  profile,
  page,
  arm,
  repeats,
  comparedWith,
  loads,
}: Cell): ComparedCell {
  const timesOf = (some: readonly LoadResult[]): ComparedCell['times'] => {
    const times = METRICS.map((metric) => [
      metric,
      some.flatMap(({ block, metrics }) => {
        const seconds = metrics[metric];
        return seconds === undefined ? [] : [{ block, seconds }];
      }),
    ]);
    return Object.fromEntries(times) as ComparedCell['times'];
  };
  const leftOut = loads.filter(({ isRoundOnly }) => isRoundOnly);
  const latePaints = loads.flatMap(({ valid, hasLatePaint, block }) =>
    valid && hasLatePaint ? [block] : [],
  );
  return {
    profile,
    page,
    arm,
    ...(latePaints.length > 0 && { latePaints }),
    ...(repeats !== undefined && { repeats }),
    ...(comparedWith !== undefined && { comparedWith }),
    times: timesOf(loads.filter(({ valid }) => valid)),
    ...(leftOut.length > 0 && { leftOutTimes: timesOf(leftOut) }),
  };
}

/** Returns whether each arm on each profile has a time to show. */
export function isComparable(results: Results): boolean {
  return results.cells.every(({ summary }) => summary.completed > 0);
}

class CellBuilder {
  readonly #loads: LoadResult[] = [];
  readonly #rehearsals: LoadResult[] = [];
  readonly #serverTcp = new Set<string>();
  readonly #clientTcp = new Set<string>();
  readonly #clientQuic = new Set<string>();
  /** By kind, the cost in each load that has it. */
  readonly #labels = new Map<LabelKind, number[]>();
  #looked = 0;
  #lookMs = SHORT_LOOK_MS;
  #latePaints = 0;

  constructor(
    readonly profile: string,
    readonly page: string,
    readonly arm: Campaign['arms'][number],
    readonly comparedWith: string | null,
  ) {}

  add(sample: Sample): void {
    const {
      load,
      block,
      outcome,
      reason,
      valid,
      invalidReasons,
      isRoundOnly = false,
      times,
      link,
      browser,
    } = sample;
    const list = block === REHEARSAL ? this.#rehearsals : this.#loads;
    const metrics = metricsOf(outcome, times, browser?.latePaintsMs !== undefined);
    const fault = outcome === 'completed' ? undefined : (browser?.documentFault ?? FAULTS[outcome]);
    const time = times.load;
    const hasLatePaint = browser?.latePaintsMs !== undefined;
    list.push({
      load,
      block,
      outcome,
      reason,
      fault,
      valid,
      invalidReasons,
      isRoundOnly,
      hasLatePaint,
      time,
      metrics,
    });
    if (block !== REHEARSAL && valid && sample.labels !== undefined) this.#addLabels(sample.labels);
    if (block !== REHEARSAL && browser !== undefined) {
      this.#lookMs = Math.max(this.#lookMs, lookOf(browser));
      if (valid && browser.latePaintsMs !== undefined) this.#latePaints += 1;
    }
    if (link) {
      this.#serverTcp.add(link.tcp_congestion.far);
      this.#clientTcp.add(link.tcp_congestion.near);
    }
    if (browser?.quicCongestion) this.#clientQuic.add(browser.quicCongestion.algorithm);
  }

  #addLabels(labels: readonly Label[]): void {
    this.#looked += 1;
    for (const { kind, seconds } of summariseLabels(labels)) {
      this.#labels.set(kind, [...(this.#labels.get(kind) ?? []), seconds]);
    }
  }

  cell(): Cell {
    const valid = this.#loads.filter((load) => load.valid);
    return {
      profile: this.profile,
      page: this.page,
      arm: this.arm.name,
      ...(this.arm.repeats !== undefined && { repeats: this.arm.repeats }),
      comparedWith: this.comparedWith,
      protocol: this.arm.protocol,
      loads: this.#loads,
      rehearsals: this.#rehearsals,
      summary: summarise(valid.map(({ time }) => time)),
      invalid: this.#loads.length - valid.length,
      medianLoad: medianLoad(valid),
      modes: twoModes(valid.flatMap(({ time }) => time ?? [])),
      congestion: {
        serverTcp: [...this.#serverTcp],
        clientTcp: [...this.#clientTcp],
        clientQuic: [...this.#clientQuic],
      },
      lookMs: this.#lookMs,
      latePaints: this.#latePaints,
      looked: this.#looked,
      labels: new Map([...this.#labels].map(([kind, costs]) => [kind, shareOf(costs)])),
    };
  }
}

const FAULTS: Readonly<Record<Exclude<Outcome, 'completed'>, string>> = {
  incomplete: 'a request of the page was not answered',
  timeout: 'no load event in time',
  failed: 'no document received',
  'not-run': 'the load did not run',
};

/**
 * Returns the times by which a load is compared. A first byte counts whatever happened later. The
 * largest paint of an incomplete load may be of only a part of the page, so it counts as never
 * reached.
 */
function metricsOf(
  outcome: Outcome,
  { load, firstByte, largestContentfulPaint }: Times,
  hasLatePaint: boolean,
): LoadResult['metrics'] {
  const completed = outcome === 'completed';
  return {
    load: load ?? Infinity,
    firstByte: outcome === 'failed' ? Infinity : (firstByte ?? (completed ? undefined : Infinity)),
    lcp: completed ? (largestContentfulPaint ?? (hasLatePaint ? Infinity : undefined)) : Infinity,
  };
}

function shareOf(costs: readonly number[]): LabelShare {
  return {
    loads: costs.length,
    medianSeconds: median(costs) ?? 0,
    mostSeconds: Math.max(...costs),
  };
}

/** Returns the load at the middle rank; loads that did not complete rank as slowest. */
function medianLoad(valid: readonly LoadResult[]): number | undefined {
  const rank = ({ time }: LoadResult): number => time ?? Number.MAX_VALUE;
  const sorted = [...valid].sort((a, b) => rank(a) - rank(b) || a.load - b.load);
  return sorted[nearestRank(50, sorted.length) - 1]?.load;
}

class LinkBuilder {
  #up = noPackets;
  #down = noPackets;

  constructor(readonly profile: string) {}

  add(link: LinkReport): void {
    this.#up = plus(this.#up, link.up);
    this.#down = plus(this.#down, link.down);
  }

  achieved(): LinkAchieved {
    return { profile: this.profile, up: this.#up, down: this.#down };
  }
}

const noPackets: DirectionAchieved = {
  asked: undefined,
  packets: 0,
  lost: 0,
  queueDropped: 0,
  unaskedDrops: 0,
  worstP99LatenessUs: undefined,
};

function plus(sum: DirectionAchieved, one: LinkDirection): DirectionAchieved {
  return {
    asked: one.asked,
    packets: sum.packets + one.packets_in,
    lost: sum.lost + one.packets_lost,
    queueDropped: sum.queueDropped + one.packets_queue_dropped,
    unaskedDrops: sum.unaskedDrops + unaskedDrops(one),
    worstP99LatenessUs: worstOf(sum.worstP99LatenessUs, one),
  };
}

function worstOf(
  worst: number | undefined,
  { lateness_us: lateness, packets_out: packetsOut }: LinkDirection,
): number | undefined {
  if ((lateness.packets ?? packetsOut) < MIN_PACKETS_FOR_P99) return worst;
  return Math.max(worst ?? 0, lateness.p99);
}

function keyOf(profile: string, page: string, arm: string): string {
  return `${profile}\n${page}\n${arm}`;
}
