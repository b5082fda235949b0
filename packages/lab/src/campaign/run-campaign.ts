import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { findBrowser } from '../run/browser.js';
import {
  CAMPAIGN,
  readCampaign,
  writeCampaign,
  type Campaign,
  type Environment,
} from './campaign-file.js';
import { countThinkTimes } from '../capture/think-time.js';
import { makeCertificate } from '../run/certificate.js';
import { describeTransfer } from '../conformance/check-conformance.js';
import { readConformance, writeConformance } from '../conformance/file.js';
import { checkConformance, controllersOf } from '../conformance/run-conformance.js';
import { diskFailure } from '../io/disk.js';
import { environment } from './environment.js';
import { ExitCode, LabError } from '../io/errors.js';
import { hashOfFiles } from '../io/hash.js';
import { FAR_ADDRESS } from '../run/link-command.js';
import {
  ALONE,
  createSamples,
  lockMachine,
  Locks,
  lockSamples,
  othersMeasuring,
  type MachineUse,
} from './lock.js';
import { createFolder, requireFree } from '../io/output-folder.js';
import { inspectPageFolder, writePage, type PageFacts } from '../page/folder.js';
import { generatePage } from '../page/generate.js';
import { readPageSpec } from '../page/spec.js';
import type { PageSource, Plan } from './plan.js';
import { resolvePlan } from './skipped-arms.js';
import { pickMade, StoppingRule } from '../compare/stopping-rule.js';
import { Looks } from '../samples/look.js';
import { preflight } from './preflight.js';
import { findPronghorn, type Pronghorn } from '../run/programs.js';
import { Progress } from './progress.js';
import type { Reference } from '../run/reference-servers.js';
import { prepareResumption, type Resumption } from './resume.js';
import { faultsOfRound, isOfRound } from './rounds.js';
import { Load, type Bench, type ServedPage } from '../run/run-load.js';
import { clearRunning, endLeftovers, isUnfinished, recordRunning } from './running.js';
import { describeConfinement, findConfinement } from '../run/sandbox.js';
import { removeFolder } from '../io/scratch.js';
import type { Sample } from '../samples/sample.js';
import { writeWarmPage } from '../run/warm-page.js';
import { WarmUpHistory } from '../run/warm-up.js';
import { appendSample, SAMPLES } from '../samples/samples-file.js';
import { hostsOf } from '../run/site.js';
import { schedule, type ScheduledLoad } from './schedule.js';
import { freshSeed } from './seed.js';

export interface CampaignOptions {
  readonly plan: Plan;
  readonly out: string;
  readonly seed: number | undefined;
  /** Resume the campaign in `out`. */
  readonly resume: boolean;
  readonly pronghorn: string | undefined;
  readonly chromium: string | undefined;
  /** Record NetLog and screenshots of every load, not only of the rehearsal. */
  readonly keepAll: boolean;
  /** Aborted to end the campaign; the loads so far are kept. */
  readonly signal: AbortSignal;
  /**
   * Replaces the default of three transfers of ten seconds if the plan compares congestion
   * controllers.
   */
  readonly conformance?: { readonly repeats: number; readonly seconds: number };
  /**
   * Called with the output folder of a new campaign after it was created, before the first load.
   */
  readonly prepare?: (out: string) => void;
  /**
   * Makes the report while the campaign still holds its locks. If it throws, a later sitting makes
   * the report.
   */
  readonly report?: (campaign: Campaign) => Promise<void>;
  /** Undefined: measure alone, or fail. */
  readonly machine?: MachineUse;
}

/**
 * Runs a campaign into its output folder. Everything that can be checked is checked before the
 * folder is created. Until the report is finished, no other process can use the folder or measure
 * on the machine.
 */
export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { out, resume, signal, machine = ALONE } = options;
  const locks = new Locks();
  try {
    if (resume) locks.add(lockSamples(out));
    else requireFree(out);
    if (resume && isReportMissing(out)) return await reportOnly(options);
    if (resume) await endLeftovers(out);
    const measuring = await lockMachine(machine, signal);
    locks.add(measuring);
    return await runLocked(options, locks, measuring);
  } catch (thrown) {
    const begun = existsSync(join(out, CAMPAIGN));
    const again = begun
      ? 'the same command with --resume continues: the loads so far are kept'
      : 'run the command again';
    throw diskFailure(thrown, again, [out, tmpdir()]) ?? thrown;
  } finally {
    locks.release();
  }
}

/** Returns whether all loads of a campaign are done but its report is unfinished. */
function isReportMissing(out: string): boolean {
  return readCampaign(out).status === 'finished' && isUnfinished(out);
}

async function reportOnly({ out, report }: CampaignOptions): Promise<Campaign> {
  await endLeftovers(out);
  const campaign = readCampaign(out);
  await report?.(campaign);
  clearRunning(out);
  return campaign;
}

async function runLocked(
  asked: CampaignOptions,
  locks: Locks,
  machineLock: number,
): Promise<Campaign> {
  const { plan, references, leftOut } = resolvePlan(asked.plan);
  const options = { ...asked, plan };
  const { out, resume } = options;
  const pronghorn = findPronghorn(options.pronghorn);
  const browser = findBrowser(options.chromium);
  const scratch = mkdtempSync(join(tmpdir(), 'pronghorn-lab-'));
  try {
    // The browser's user can enter the scratch folder, and a recording may be private.
    mkdirSync(join(scratch, 'pages'), { mode: 0o700 });
    const pages = new Map(
      plan.pages.map((page) => [page.name, servePage(page, join(scratch, 'pages', page.name))]),
    );
    const confinement = await findConfinement(browser.path, scratch);
    const machine = environment(browser.version, pronghorn, describeConfinement(confinement));
    const described = {
      ...describe(options, pages, machine, references),
      ...(leftOut.length > 0 && { leftOut: [...leftOut] }),
    };
    const before = resume ? await prepareResumption(out, described) : undefined;
    const bench: Bench = {
      pronghorn: pronghorn.path,
      chromium: browser.path,
      confinement,
      certificate: makeCertificate(scratch, FAR_ADDRESS, hostsOfAll(pages), plan.certificate),
      pages,
      servers: new Map(plan.servers.map((server) => [server.name, server])),
      references,
      arms: plan.arms,
      warmed: new WarmUpHistory(),
      looks: before?.looks ?? new Looks(),
      warmFolder: plan.browser === 'warm' ? join(scratch, 'warm') : undefined,
      timeoutSeconds: plan.timeoutSeconds,
      scratch,
      out,
      keepAll: options.keepAll,
      machineLock,
    };
    if (bench.warmFolder !== undefined) writeWarmPage(bench.warmFolder);
    await preflight(bench, plan.profiles, plan.arms);
    if (!confinement.sandbox) {
      process.stderr.write(`warning: Chromium's sandbox is ${describeConfinement(confinement)}\n`);
    }
    if (options.signal.aborted)
      throw new LabError(ExitCode.Interrupted, 'interrupted before the first load');
    const campaign = before?.campaign ?? described;
    if (before === undefined) begin(options, campaign, locks);
    else writeCampaign(out, campaign);
    for (const { arm, reason } of leftOut) process.stderr.write(`skipping arm ${arm}: ${reason}\n`);
    recordRunning(out, scratch);
    const known =
      !plan.conformance || (await isConformanceKnown(options, pronghorn, campaign.seed, bench));
    const finished = known && (await runLoads(bench, options, campaign, before));
    const ended = withEnd(campaign, finished ? 'finished' : 'interrupted');
    writeCampaign(out, ended);
    await options.report?.(ended);
    clearRunning(out);
    return ended;
  } finally {
    await removeFolder(scratch);
  }
}

/**
 * Creates the folder of a new campaign with the files that the first load needs; on failure removes
 * them.
 */
function begin({ out, prepare }: CampaignOptions, campaign: Campaign, locks: Locks): void {
  createFolder(out);
  locks.add(createSamples(out));
  try {
    prepare?.(out);
    writeCampaign(out, campaign);
  } catch (thrown) {
    // The lock guarantees that no other campaign wrote here since.
    for (const name of readdirSync(out)) rmSync(join(out, name));
    throw thrown;
  }
}

/**
 * Transfers per controller and protocol, and seconds of each: a minute and a half per controller.
 */
const CONFORMANCE = { repeats: 3, seconds: 10 };

/**
 * Compares the arms' congestion controllers unless an earlier sitting has; false if interrupted.
 */
async function isConformanceKnown(
  { plan, out, signal, machine = ALONE, conformance = CONFORMANCE }: CampaignOptions,
  pronghorn: Pronghorn,
  seed: number,
  { scratch: within, machineLock }: Bench,
): Promise<boolean> {
  if (readConformance(out)?.status === 'finished') return true;
  const { status } = await checkConformance({
    ...{
      pronghorn,
      seed,
      signal,
      within,
      machineLock,
      sharedMachine: machine.share,
      ...conformance,
    },
    congestion: controllersOf(plan.arms, plan.servers),
    onProgress: (so, transfer) => {
      writeConformance(out, so);
      if (transfer !== undefined)
        process.stderr.write(`conformance ${describeTransfer(transfer, so)}\n`);
    },
  });
  return status === 'finished';
}

/** Runs the remaining loads in sequence; false if the campaign was interrupted. */
async function runLoads(
  bench: Bench,
  { plan, signal, machine = ALONE }: CampaignOptions,
  campaign: Campaign,
  before: Resumption | undefined,
): Promise<boolean> {
  const shared = machine.share ? bench.machineLock : undefined;
  const blocks = schedule(plan, plan.blocks.max, campaign.seed);
  const progress = new Progress(blocks.flat(), process.stderr);
  const rule = new StoppingRule(plan, campaign.seed, before?.made ?? []);
  let round: Sample[] = [];
  for (const block of blocks) {
    for (const scheduled of block) {
      if (before?.done.has(scheduled.number) || rule.isEnough(scheduled)) {
        progress.passed(scheduled);
        continue;
      }
      if (signal.aborted) return false;
      progress.started(scheduled);
      const sample = await makeOne(bench, scheduled, signal, shared).catch((thrown: unknown) => {
        progress.interrupted(scheduled);
        throw thrown;
      });
      if (sample === undefined) {
        progress.interrupted(scheduled);
        return false;
      }
      rule.add(pickMade(sample));
      progress.finished(scheduled, sample);
      round = [...round.filter((other) => isOfRound(other, sample)), sample];
      const [fault] = round.length === plan.arms.length ? faultsOfRound(round) : [];
      if (fault !== undefined) progress.roundIsInvalid(scheduled, fault);
    }
  }
  return true;
}

/** Runs a load and stores its sample; undefined if interrupted. */
async function makeOne(
  bench: Bench,
  scheduled: ScheduledLoad,
  signal: AbortSignal,
  shared: number | undefined,
): Promise<Sample | undefined> {
  const before = othersMeasuring(shared);
  const made = await runOne(bench, scheduled, signal);
  if (made === undefined) return undefined;
  const beside = Math.max(before, othersMeasuring(shared));
  const sample = beside === 0 ? made : { ...made, otherCampaigns: beside };
  appendSample(join(bench.out, SAMPLES), sample);
  return sample;
}

async function runOne(
  bench: Bench,
  scheduled: ScheduledLoad,
  signal: AbortSignal,
): ReturnType<Load['sample']> {
  const load = new Load(bench, scheduled);
  const onAbort = (): void => void load.stop();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await load.sample();
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/**
 * Copies the page to where the server will look for it, and returns what a load of it has to fetch.
 */
function servePage(source: PageSource, folder: string): ServedPage {
  if (source.kind === 'url') {
    const { name, url, spki } = source;
    return {
      folder,
      thinkTimes: false,
      facts: {
        ...{
          requests: undefined,
          bytes: undefined,
          leastBytes: undefined,
          manifestText: undefined,
        },
        name,
        live: { url, spki },
      },
    };
  }
  if (source.kind === 'spec') {
    writePage(generatePage(readPageSpec(source.path).value), folder);
    return { folder, facts: inspectPageFolder(folder, undefined), thinkTimes: false };
  }
  const facts = inspectPageFolder(source.path, source.requests);
  cpSync(source.path, folder, { recursive: true });
  return { folder, facts, thinkTimes: thinkTimesOf(source, facts) };
}

/**
 * Returns whether to imitate a recording's think times: if it has any, unless the plan says
 * otherwise.
 */
function thinkTimesOf(
  { path, thinkTimes }: Extract<PageSource, { kind: 'folder' }>,
  { recording }: PageFacts,
): boolean {
  const has =
    recording?.recording.entries.some(({ thinkSeconds }) => thinkSeconds !== undefined) === true;
  if (thinkTimes === true && !has) {
    const what = `the page folder ${path} has no think times, but the plan sets \`think_times\``;
    throw new LabError(ExitCode.Malformed, what, 'capture the page again, or remove `think_times`');
  }
  return thinkTimes ?? has;
}

function hostsOfAll(pages: ReadonlyMap<string, ServedPage>): string[] {
  return [...pages.values()].flatMap(({ facts }) =>
    facts.recording === undefined ? [] : hostsOf(facts.recording),
  );
}

function describe(
  { plan, seed, keepAll, machine: use = ALONE }: CampaignOptions,
  pages: ReadonlyMap<string, ServedPage>,
  machine: Environment,
  references: ReadonlyMap<string, Reference>,
): Campaign {
  const { min, max, intervalPercent } = plan.blocks;
  return {
    schema: 2,
    name: plan.name,
    seed: seed ?? plan.seed ?? freshSeed(),
    blocks: { min, max, ...(intervalPercent !== undefined && { intervalPercent }) },
    timeoutSeconds: plan.timeoutSeconds,
    watched: keepAll,
    status: 'running',
    sittings: [
      { startedAt: new Date().toISOString(), ...(use.share && { sharedMachine: true as const }) },
    ],
    plan: { file: basename(plan.path), sha256: sha256(plan.text), text: plan.text },
    pages: [...pages].map(([name, page]) => describePage(name, page)),
    profiles: plan.profiles.map(({ name, path, text, jitter }) => ({
      name,
      sha256: hashOfProfile(path, text),
      text,
      ...(jitter === false && { jitter }),
    })),
    servers: plan.servers.map(({ args, ...rest }) => ({
      ...rest,
      args: [...args],
      ...versionOf(references.get(rest.name)),
    })),
    arms: [...plan.arms],
    baseline: plan.baseline,
    browser: plan.browser,
    certificate: plan.certificate,
    failIf: [...plan.failIf],
    environment: machine,
  };
}

function versionOf(reference: Reference | undefined): { version?: string } {
  return reference === undefined ? {} : { version: reference.version };
}

/** Hashes a profile and the files that it names. */
function hashOfProfile(path: string, text: string): string {
  const traces = [...text.matchAll(/^\s*rate_trace\s*=\s*["'](.+)["']/gm)].map(([, file = '']) =>
    resolve(dirname(path), file),
  );
  const hash = createHash('sha256').update(text);
  for (const trace of traces) if (existsSync(trace)) hash.update(readFileSync(trace));
  return hash.digest('hex');
}

function describePage(
  name: string,
  { folder, facts, thinkTimes }: ServedPage,
): Campaign['pages'][number] {
  const { requests, bytes, manifestText, live, recording } = facts;
  return {
    name,
    ...(thinkTimes && { thinkTimes }),
    ...(thinkTimes &&
      recording !== undefined && { thinkTimeCounts: countThinkTimes(recording.recording.entries) }),
    ...(live !== undefined && { url: live.url }),
    ...(requests !== undefined && { requests }),
    ...(recording !== undefined && recording.uncounted > 0 && { uncounted: recording.uncounted }),
    ...(bytes !== undefined && { bytes }),
    ...(manifestText !== undefined && { sha256: sha256(manifestText) }),
    ...(live === undefined && { filesSha256: hashOfFiles(folder) }),
  };
}

function withEnd(campaign: Campaign, status: 'finished' | 'interrupted'): Campaign {
  const sittings = campaign.sittings.map((sitting, at, all) =>
    at === all.length - 1 ? { ...sitting, finishedAt: new Date().toISOString() } : sitting,
  );
  return { ...campaign, status, sittings };
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
