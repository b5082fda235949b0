import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  FAR_ADDRESS,
  lastWord,
  linkCommand,
  NEAR_ADDRESS,
  start,
  stop,
  type Ended,
  type Running,
} from './link-command.js';
import { readLinkReport, type LinkReading } from './link-report.js';
import { requireDisk, requireFreeSpace } from '../io/disk.js';
import { serverSide, readWarmUps, warmUpsOf } from './server-side.js';
import { awaitedUrls, type Expected } from '../load/expected.js';
import { JobFile, type LoadJob } from '../load/job.js';
import { lookOf, type Looks } from '../samples/look.js';
import type { PageFacts } from '../page/folder.js';
import {
  SAMPLE_SCHEMA,
  type BrowserSide,
  type LoadCpu,
  type Outcome,
  type Sample,
  type ServerCounters,
  type Times,
} from '../samples/sample.js';
import { REHEARSAL, type ScheduledLoad } from '../campaign/schedule.js';
import { countRequests, readCounters } from './server-command.js';
import type { Certificate } from './certificate.js';
import { machineCpu, readCpuCounters, type CpuCounters } from './machine-cpu.js';
import type { Arm, ServerSpec } from '../campaign/plan.js';
import type { Reference } from './reference-servers.js';
import { makeFolderFor, type Confinement } from './sandbox.js';
import { removeFolder } from '../io/scratch.js';
import { siteOf } from './site.js';
import type { Label } from '../trace/label.js';
import { labelsOf } from '../trace/labels.js';
import { timelineIfReadable } from '../trace/timeline.js';
import { keepTraces } from '../samples/traces.js';
import { invalidReasons } from '../samples/validity.js';
import { warmPageFor } from './warm-page.js';
import { warmUpsAtMost, withoutWarmUps, type WarmUpHistory, type WarmUp } from './warm-up.js';

/** The shared environment of a campaign's loads. */
export interface Bench {
  readonly pronghorn: string;
  readonly chromium: string;
  readonly confinement: Confinement;
  readonly certificate: Certificate;
  /** The pages by name. */
  readonly pages: ReadonlyMap<string, ServedPage>;
  readonly servers: ReadonlyMap<string, ServerSpec>;
  /** Reference servers by the name of the plan's server. */
  readonly references: ReadonlyMap<string, Reference>;
  /** The arms of the plan. */
  readonly arms: readonly Arm[];
  /** The protocols over which servers have been warmed so far. */
  readonly warmed: WarmUpHistory;
  /** The observation time of each page's loads, as known so far. */
  readonly looks: Looks;
  /** Folder of the page that a warm browser shows first. Undefined for a cold browser. */
  readonly warmFolder: string | undefined;
  readonly timeoutSeconds: number;
  /** The campaign's folder for temporary files. */
  readonly scratch: string;
  /** The campaign's output folder. */
  readonly out: string;
  readonly keepAll: boolean;
  /** The machine's lock, inherited by every process of a load. */
  readonly machineLock: number;
}

/** A page as the server finds it. */
export interface ServedPage {
  readonly folder: string;
  readonly facts: PageFacts;
  /** Whether a recorded server's think times are imitated. */
  readonly thinkTimes: boolean;
}

/** Time limit for starting and ending link, server and browser, in addition to the load itself. */
const OVERHEAD_SECONDS = 40;

const LOAD_ONE = fileURLToPath(new URL('../load/load-one.js', import.meta.url));

/** One load: a process tree of link, server and browser that is started, awaited and judged. */
export class Load {
  readonly #bench: Bench;
  readonly #scheduled: ScheduledLoad;
  readonly #folder: string;
  readonly #running: Running;
  readonly #startedAt = new Date();
  readonly #cpuBefore = readCpuCounters();
  #stopped = false;
  #overdue = false;

  constructor(bench: Bench, scheduled: ScheduledLoad) {
    this.#bench = bench;
    this.#scheduled = scheduled;
    this.#folder = makeFolderFor(
      bench.confinement,
      join(bench.scratch, `load-${scheduled.number}-`),
    );
    this.#running = start(this.#command(), join(this.#folder, JobFile.Output), bench.machineLock);
  }

  /** Waits for the end and returns the sample; undefined if the load was stopped. */
  async sample(): Promise<Sample | undefined> {
    const limit = setTimeout(
      () => {
        this.#overdue = true;
        void stop(this.#running);
      },
      (this.#visits() * this.#bench.timeoutSeconds + this.#overheadSeconds()) * 1000,
    );
    const ended = await this.#running.ended;
    const cpuAfter = readCpuCounters();
    clearTimeout(limit);
    try {
      return this.#stopped ? undefined : await this.#judge(ended, cpuAfter);
    } finally {
      await removeFolder(this.#folder);
    }
  }

  /** Ends the load without a sample. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await stop(this.#running);
  }

  #command(): string[] {
    const { chromium, confinement, timeoutSeconds } = this.#bench;
    const { arm, profile, linkSeed } = this.#scheduled;
    const { facts } = this.#page();
    const inFolder = (name: string): string => join(this.#folder, name);
    const job: LoadJob = {
      chromium,
      confinement,
      protocol: arm.protocol,
      visit: arm.visit,
      ...this.#warmPage(facts),
      ...(arm.discovery && { discovery: arm.discovery }),
      ...siteOf(facts, arm),
      ...this.#whereabouts(facts),
      timeoutSeconds,
      expected: expectedOf(facts),
      lookMs: this.#bench.looks.lookMs(this.#scheduled),
      watched: this.#watched(),
      folder: this.#folder,
    };
    const jobPath = inFolder(JobFile.Job);
    writeFileSync(jobPath, JSON.stringify(job));
    const near = [process.execPath, LOAD_ONE, jobPath];
    if (facts.live !== undefined) return near;
    return linkCommand({
      ...serverSide({
        bench: this.#bench,
        arm,
        page: this.#page(),
        folder: this.#folder,
        ...(this.#watched() && { qlogFolder: inFolder(JobFile.Qlog) }),
      }),
      profilePath: profile.path,
      ...(profile.jitter === false && { jitter: false }),
      seed: linkSeed,
      reportPath: inFolder(JobFile.LinkReport),
      traces: { packets: inFolder(JobFile.Packets), tcpInfo: inFolder(JobFile.TcpInfo) },
      ...(arm.discovery === 'https-record' && { resolver: NEAR_ADDRESS }),
      near,
    });
  }

  #warmPage({ live }: PageFacts): Pick<LoadJob, 'warmPage'> {
    const { pronghorn, warmFolder, certificate } = this.#bench;
    if (warmFolder === undefined) return {};
    const { arm } = this.#scheduled;
    return {
      warmPage: warmPageFor(
        pronghorn,
        warmFolder,
        arm,
        live === undefined ? certificate : undefined,
      ),
    };
  }

  /** Returns the addresses of server and resolver, and the key that the browser accepts. */
  #whereabouts({ live }: PageFacts): Pick<LoadJob, 'serverAddress' | 'resolverAddress' | 'spki'> {
    if (live !== undefined) return live.spki === undefined ? {} : { spki: live.spki };
    return {
      serverAddress: FAR_ADDRESS,
      resolverAddress: NEAR_ADDRESS,
      spki: this.#bench.certificate.spki,
    };
  }

  #watched(): boolean {
    return this.#bench.keepAll || this.#scheduled.block === REHEARSAL;
  }

  #overheadSeconds(): number {
    return OVERHEAD_SECONDS + warmUpsAtMost(warmUpsOf(this.#bench, this.#scheduled.arm).length);
  }

  /** Returns how often the page is loaded. */
  #visits(): number {
    return this.#scheduled.arm.visit === 'first' ? 1 : 2;
  }

  #page(): ServedPage {
    return this.#bench.pages.get(this.#scheduled.page) as ServedPage;
  }

  async #judge(ended: Ended, cpuAfter: CpuCounters | undefined): Promise<Sample> {
    const output = readOr(join(this.#folder, JobFile.Output), '');
    // On a full disk, browser, link and server fail in many ways for which the arm is not
    // responsible.
    const place = dirname(this.#bench.scratch);
    if (ended.kind === 'exit' && ended.code === 0) requireFreeSpace(place);
    else requireDisk(output, place);
    const browser = this.#readBrowserSide();
    const link = readLinkReport(join(this.#folder, JobFile.LinkReport));
    const own = link.kind === 'report' ? link.report.total_cpu_seconds : undefined;
    const machine = machineCpu(this.#cpuBefore, cpuAfter, own);
    const warmUps = readWarmUps(this.#bench, this.#scheduled.arm, link);
    this.#bench.warmed.add(this.#scheduled.arm.server, warmUps ?? []);
    const counted = readCounters(output);
    const serverCounters = counted && withoutWarmUps(counted, warmUps ?? []);
    const verdict = this.#verdict({
      ended,
      output,
      browser,
      link,
      warmUps,
      counters: serverCounters,
    });
    const cpuSeconds = cpuOf(browser, link);
    const labels = browser && (await this.#labels(browser, link, cpuSeconds));
    const traces = keepTraces(this.#folder, this.#bench.out, this.#scheduled.number);
    const { number, profile, page, block, position, arm, linkSeed } = this.#scheduled;
    if (browser !== undefined) this.#bench.looks.add({ block, page, browser });
    return {
      schema: SAMPLE_SCHEMA,
      load: number,
      profile: profile.name,
      page,
      block,
      position,
      arm: arm.name,
      protocol: arm.protocol,
      congestion: arm.congestion,
      visit: arm.visit,
      ...(arm.discovery && { discovery: arm.discovery }),
      server: arm.server,
      linkSeed,
      startedAt: this.#startedAt.toISOString(),
      wallSeconds: (Date.now() - this.#startedAt.getTime()) / 1000,
      ...verdict,
      valid: verdict.invalidReasons.length === 0,
      times: browser === undefined ? {} : timesOf(browser, expectedOf(this.#page().facts)),
      cpuSeconds,
      ...(machine && { machine }),
      ...(warmUps && { warmUps }),
      ...(labels !== undefined && { labels }),
      ...(browser !== undefined && { browser }),
      ...(link.kind === 'report' && { link: link.report }),
      serverRequests: countRequests(output),
      ...(serverCounters && { serverCounters }),
      traces,
    };
  }

  /**
   * Returns what the rules find in the packets and other traces; undefined if there was nothing to
   * examine.
   */
  async #labels(
    browser: BrowserSide,
    link: LinkReading,
    cpuSeconds: LoadCpu,
  ): Promise<Label[] | undefined> {
    const timeline = await timelineIfReadable(this.#folder, browser);
    if (timeline === undefined) return undefined;
    const { link: emulator, browser: processes } = cpuSeconds;
    const asked = (way: 'up' | 'down'): number | null | undefined =>
      link.kind === 'report' ? link.report[way].asked.rate_mbit_per_second : undefined;
    return labelsOf(timeline, {
      cpu: {
        // The server's time covers its whole run, so it says nothing about the load alone.
        seconds: {
          ...(emulator !== undefined && { link: emulator }),
          ...(processes && { browser: { ...processes } }),
        },
        overSeconds: timeline.end / 1000,
        cores: availableParallelism(),
      },
      rateMbit: { up: asked('up') ?? null, down: asked('down') ?? null },
    });
  }

  #verdict({ ended, output, browser, link, warmUps, counters }: LoadEvidence): {
    outcome: Outcome;
    reason?: string;
    invalidReasons: string[];
  } {
    if (browser === undefined) {
      const reason = this.#overdue
        ? `still running ${this.#overheadSeconds()} s after the load's time limit`
        : describeEnd(ended, output);
      return { outcome: 'not-run', reason, invalidReasons: [`the load did not run: ${reason}`] };
    }
    const { outcome, reason } = browser;
    const end = { outcome, ...(reason !== undefined && { reason }) };
    const { live } = this.#page().facts;
    if (link.kind === 'problem' && live === undefined)
      return { ...end, invalidReasons: [`${link.problem}: ${describeEnd(ended, output)}`] };
    const { arm } = this.#scheduled;
    const pageBytes = this.#page().facts.leastBytes;
    const origin = live === undefined ? undefined : new URL(live.url).host;
    const report = link.kind === 'report' ? link.report : undefined;
    const isKnown = this.#bench.servers.get(arm.server)?.command === undefined;
    const judged = isKnown && warmUps ? { warmUps } : {};
    return {
      ...end,
      invalidReasons: invalidReasons({
        arm,
        pageBytes,
        browser,
        link: report,
        counters,
        origin,
        ...judged,
      }),
    };
  }

  #readBrowserSide(): BrowserSide | undefined {
    const text = readOr(join(this.#folder, JobFile.Result), undefined);
    return text === undefined ? undefined : (JSON.parse(text) as BrowserSide);
  }
}

/** The data of a load by which it is judged. */
interface LoadEvidence {
  readonly ended: Ended;
  readonly output: string;
  readonly browser: BrowserSide | undefined;
  readonly link: LinkReading;
  readonly warmUps: readonly WarmUp[] | undefined;
  readonly counters: ServerCounters | undefined;
}

function expectedOf({ recording, requests }: PageFacts): Expected {
  if (recording !== undefined) return { kind: 'recording', ...recording.expected };
  return requests === undefined ? { kind: 'document' } : { kind: 'count', requests };
}

/**
 * Returns the figures of a load, in seconds. An error page has none: it may come sooner than the
 * page would have.
 *
 * No figure depends on how long after its load event a load was observed. A response that is not
 * `expected`, for which the lab does not wait, counts if it came within the time after the load
 * event in which paints count.
 */
export function timesOf(browser: BrowserSide, expected: Expected): Times {
  const { navigation, resources, outcome, documentFault } = browser;
  if (navigation === undefined || documentFault !== undefined) return {};
  // What the page requests later is not part of the load.
  const started = resources.filter(({ startTime }) => startTime <= navigation.loadEventStart);
  const { navigationStartMonotonicMs: start } = browser;
  const loadEventMs = start === undefined ? undefined : start + navigation.loadEventStart;
  const awaited = awaitedUrls(browser.requests, expected, loadEventMs);
  const untilMs = navigation.loadEventStart + lookOf(browser);
  const ofLoad = started.filter(
    ({ name, responseEnd }) => responseEnd <= untilMs || awaited.has(name),
  );
  const lastByte = Math.max(navigation.responseEnd, ...ofLoad.map((entry) => entry.responseEnd));
  const seconds = (milliseconds: number | undefined): number | undefined =>
    milliseconds === undefined || milliseconds <= 0 ? undefined : milliseconds / 1000;
  const times = {
    load: outcome === 'completed' ? seconds(navigation.loadEventEnd) : undefined,
    firstByte: seconds(navigation.responseStart),
    lastByte: outcome === 'completed' ? seconds(lastByte) : undefined,
    firstContentfulPaint: seconds(browser.firstContentfulPaintMs),
    largestContentfulPaint: seconds(browser.largestContentfulPaintMs),
  };
  return Object.fromEntries(Object.entries(times).filter(([, value]) => value !== undefined));
}

function cpuOf(browser: BrowserSide | undefined, link: LinkReading): LoadCpu {
  const report = link.kind === 'report' ? link.report : undefined;
  return {
    ...(report?.far_cpu_seconds !== undefined && { server: report.far_cpu_seconds }),
    ...(report !== undefined && {
      link: report.cpu_seconds.emulator.user + report.cpu_seconds.emulator.system,
    }),
    ...(browser?.cpuSeconds && { browser: browser.cpuSeconds }),
  };
}

function describeEnd(ended: Ended, output: string): string {
  switch (ended.kind) {
    case 'exit':
      return `exit code ${ended.code}, ${lastWord(output)}`;
    case 'signal':
      return `killed by ${ended.signal}, ${lastWord(output)}`;
    case 'unstartable':
      return ended.reason;
  }
}

function readOr<T>(path: string, otherwise: T): string | T {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}
