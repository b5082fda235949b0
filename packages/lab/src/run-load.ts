import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { HOST } from './browser.js';
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
import { JobFile, type LoadJob } from './load/job.js';
import type { PageFacts } from './page/folder.js';
import { SAMPLE_SCHEMA, type BrowserSide, type Outcome, type Sample, type Times } from './sample.js';
import { REHEARSAL, type ScheduledLoad } from './schedule.js';
import { countRequests, portOf, readCounters, serverCommand } from './server-command.js';
import type { Certificate } from './certificate.js';
import type { ServerSpec } from './plan.js';
import { invalidReasons } from './validity.js';

/** What all loads of a campaign have in common. */
export interface Bench {
  readonly pronghorn: string;
  readonly chromium: string;
  readonly certificate: Certificate;
  /** The pages by name. */
  readonly pages: ReadonlyMap<string, ServedPage>;
  readonly servers: ReadonlyMap<string, ServerSpec>;
  readonly timeoutSeconds: number;
  /** A folder of the campaign for what is removed at its end. */
  readonly scratch: string;
  /** The campaign's output folder. */
  readonly out: string;
  readonly keepAll: boolean;
}

/** A page where the server finds it. */
export interface ServedPage {
  readonly folder: string;
  readonly facts: PageFacts;
}

/** What link, server and browser may take beside the load itself before the lab ends them. */
const OVERHEAD_SECONDS = 30;

const LOAD_ONE = fileURLToPath(new URL('load/load-one.js', import.meta.url));

/** One load: a process tree of link, server and browser that is started, awaited and judged. */
export class Load {
  readonly #bench: Bench;
  readonly #scheduled: ScheduledLoad;
  readonly #folder: string;
  readonly #running: Running;
  readonly #startedAt = new Date();
  #stopped = false;
  #overdue = false;

  constructor(bench: Bench, scheduled: ScheduledLoad) {
    this.#bench = bench;
    this.#scheduled = scheduled;
    this.#folder = mkdtempSync(join(bench.scratch, `load-${scheduled.number}-`));
    this.#running = start(this.#command(), join(this.#folder, JobFile.Output));
  }

  /** The process of the link, at the root of all others. */
  get pid(): number | undefined {
    return this.#running.child.pid;
  }

  /** Waits for the end and gives the sample, or undefined if the load was stopped. */
  async sample(): Promise<Sample | undefined> {
    const limit = setTimeout(
      () => {
        this.#overdue = true;
        void stop(this.#running);
      },
      (this.#visits() * this.#bench.timeoutSeconds + OVERHEAD_SECONDS) * 1000,
    );
    const ended = await this.#running.ended;
    clearTimeout(limit);
    try {
      return this.#stopped ? undefined : this.#judge(ended);
    } finally {
      rmSync(this.#folder, { recursive: true, force: true, maxRetries: 3 });
    }
  }

  /** Ends the load without a sample. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await stop(this.#running);
  }

  #command(): string[] {
    const { pronghorn, chromium, certificate, timeoutSeconds, keepAll } = this.#bench;
    const { arm, block, profile, linkSeed } = this.#scheduled;
    const { folder, facts } = this.#page();
    const hosts = [HOST];
    const job: LoadJob = {
      chromium,
      protocol: arm.protocol,
      visit: arm.visit,
      ...(arm.discovery && { discovery: arm.discovery }),
      url: `${arm.protocol === 'http' ? 'http' : 'https'}://${HOST}/`,
      hosts,
      serverAddress: FAR_ADDRESS,
      resolverAddress: NEAR_ADDRESS,
      spki: certificate.spki,
      timeoutSeconds,
      expectedRequests: facts.requests,
      watched: keepAll || block === REHEARSAL,
      folder: this.#folder,
    };
    const jobPath = join(this.#folder, JobFile.Job);
    writeFileSync(jobPath, JSON.stringify(job));
    const spec = this.#bench.servers.get(arm.server) as ServerSpec;
    return linkCommand({
      pronghorn,
      profilePath: profile.path,
      seed: linkSeed,
      congestion: arm.congestion,
      reportPath: join(this.#folder, JobFile.LinkReport),
      ...(arm.discovery === 'https-record' && { resolver: NEAR_ADDRESS }),
      far: serverCommand({ pronghorn, spec, arm, pageFolder: folder, address: FAR_ADDRESS, certificate }),
      farPort: portOf(arm),
      near: [process.execPath, LOAD_ONE, jobPath],
    });
  }

  /** How often the page is loaded. */
  #visits(): number {
    return this.#scheduled.arm.visit === 'first' ? 1 : 2;
  }

  #page(): ServedPage {
    return this.#bench.pages.get(this.#scheduled.page) as ServedPage;
  }

  #judge(ended: Ended): Sample {
    const output = readOr(join(this.#folder, JobFile.Output), '');
    const browser = this.#readBrowserSide();
    const link = readLinkReport(join(this.#folder, JobFile.LinkReport));
    const verdict = this.#verdict(ended, output, browser, link);
    const wentWrong = verdict.outcome !== 'completed' || verdict.invalidReasons.length > 0;
    const kept = wentWrong || this.#bench.keepAll ? this.#keep() : undefined;
    const { number, profile, page, block, position, arm, linkSeed } = this.#scheduled;
    const serverCounters = readCounters(output);
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
      times: browser === undefined ? {} : timesOf(browser),
      ...(browser !== undefined && { browser }),
      ...(link.kind === 'report' && { link: link.report }),
      serverRequests: countRequests(output),
      ...(serverCounters && { serverCounters }),
      ...(kept !== undefined && { kept }),
    };
  }

  #verdict(
    ended: Ended,
    output: string,
    browser: BrowserSide | undefined,
    link: LinkReading,
  ): { outcome: Outcome; reason?: string; invalidReasons: string[] } {
    if (browser === undefined) {
      const reason = this.#overdue ? `no end ${OVERHEAD_SECONDS} s after the load's time` : endInWords(ended, output);
      return { outcome: 'not-run', reason, invalidReasons: [`the load did not run: ${reason}`] };
    }
    const { outcome, reason } = browser;
    const end = { outcome, ...(reason !== undefined && { reason }) };
    if (link.kind === 'problem') return { ...end, invalidReasons: [`${link.problem}: ${endInWords(ended, output)}`] };
    const { arm } = this.#scheduled;
    const pageBytes = this.#page().facts.bytes;
    const counters = readCounters(output);
    return { ...end, invalidReasons: invalidReasons({ arm, pageBytes, browser, link: link.report, counters }) };
  }

  #readBrowserSide(): BrowserSide | undefined {
    const text = readOr(join(this.#folder, JobFile.Result), undefined);
    return text === undefined ? undefined : (JSON.parse(text) as BrowserSide);
  }

  /** Copies what explains the load; the browser's own profile folder explains nothing. */
  #keep(): string {
    const { number, profile, block, arm } = this.#scheduled;
    const name = `${String(number).padStart(4, '0')}-${profile.name}-block${block}-${arm.name}`;
    const target = join(this.#bench.out, 'kept', name);
    mkdirSync(target, { recursive: true });
    for (const file of [JobFile.NetLog, JobFile.LinkReport, JobFile.Output]) {
      const source = join(this.#folder, file);
      if (existsSync(source)) cpSync(source, join(target, file));
    }
    return `kept/${name}`;
  }
}

/** The figures of a load, in seconds. */
export function timesOf(browser: BrowserSide): Times {
  const { navigation, resources, outcome } = browser;
  if (navigation === undefined) return {};
  const lastByte = Math.max(navigation.responseEnd, ...resources.map((entry) => entry.responseEnd));
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

function endInWords(ended: Ended, output: string): string {
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
