import { createHash } from 'node:crypto';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { findBrowser } from './browser.js';
import { writeCampaign, type Campaign } from './campaign-file.js';
import { makeCertificate } from './certificate.js';
import { environment } from './environment.js';
import { ExitCode, LabError } from './errors.js';
import { FAR_ADDRESS } from './link-command.js';
import { createFolder, requireFree } from './output-folder.js';
import { inspectPageFolder, writePage, type PageFacts } from './page/folder.js';
import { generatePage } from './page/generate.js';
import { readPageSpec } from './page/spec.js';
import type { PageSource, Plan } from './plan.js';
import { preflight } from './preflight.js';
import { findPronghorn } from './programs.js';
import { Progress } from './progress.js';
import { Load, type Bench } from './run-load.js';
import { appendSample, SAMPLES } from './samples-file.js';
import { schedule } from './schedule.js';

export interface CampaignOptions {
  readonly plan: Plan;
  readonly out: string;
  readonly seed: number;
  readonly pronghorn: string | undefined;
  readonly chromium: string | undefined;
  /** Write NetLogs, and keep them with the output of each load, not only of those that went wrong. */
  readonly keepAll: boolean;
  /** Aborted to end the campaign after what was measured so far. */
  readonly signal: AbortSignal;
}

/** Runs a campaign into its output folder. All that can be wrong beforehand is found before the folder is made. */
export async function runCampaign(options: CampaignOptions): Promise<Campaign> {
  const { plan, out } = options;
  requireFree(out);
  const pronghorn = findPronghorn(options.pronghorn);
  const browser = findBrowser(options.chromium);
  const scratch = mkdtempSync(join(tmpdir(), 'pronghorn-lab-'));
  try {
    const pageFolder = join(scratch, 'page');
    const page = preparePage(plan.page, pageFolder);
    const bench: Bench = {
      pronghorn: pronghorn.path,
      chromium: browser.path,
      certificate: makeCertificate(scratch, FAR_ADDRESS),
      pageFolder,
      page,
      timeoutSeconds: plan.timeoutSeconds,
      scratch,
      keepFolder: join(out, 'kept'),
      keepAll: options.keepAll,
    };
    await preflight(bench, plan.profiles, plan.arms);
    if (options.signal.aborted) throw new LabError(ExitCode.Interrupted, 'interrupted before the first load');
    createFolder(out);
    writeFileSync(join(out, SAMPLES), '');
    const campaign = describe(options, page, environment(browser.version, pronghorn.version));
    writeCampaign(out, campaign);
    const finished = await runLoads(bench, options);
    const ended: Campaign = {
      ...campaign,
      status: finished ? 'finished' : 'interrupted',
      finishedAt: new Date().toISOString(),
    };
    writeCampaign(out, ended);
    return ended;
  } finally {
    rmSync(scratch, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** Runs the loads one after the other; false if the campaign was ended early. */
async function runLoads(bench: Bench, { plan, out, seed, signal }: CampaignOptions): Promise<boolean> {
  const loads = schedule(plan, seed);
  const progress = new Progress(loads, process.stderr);
  for (const scheduled of loads) {
    if (signal.aborted) return false;
    progress.started(scheduled);
    const load = new Load(bench, scheduled);
    const onAbort = (): void => void load.stop();
    signal.addEventListener('abort', onAbort, { once: true });
    const sample = await load.sample();
    signal.removeEventListener('abort', onAbort);
    if (sample === undefined) {
      progress.interrupted(scheduled);
      return false;
    }
    appendSample(join(out, SAMPLES), sample);
    progress.finished(scheduled, sample);
  }
  return true;
}

/** Puts a copy of the page where the server will look for it, and says what a load of it has to fetch. */
function preparePage(source: PageSource, folder: string): PageFacts {
  if (source.kind === 'spec') {
    writePage(generatePage(readPageSpec(source.path).value), folder);
    return inspectPageFolder(folder, undefined);
  }
  const facts = inspectPageFolder(source.path, source.requests);
  cpSync(source.path, folder, { recursive: true });
  return facts;
}

function describe(options: CampaignOptions, page: PageFacts, machine: Campaign['environment']): Campaign {
  const { plan, seed } = options;
  return {
    schema: 1,
    name: plan.name,
    seed,
    blocks: plan.blocks,
    timeoutSeconds: plan.timeoutSeconds,
    netLog: options.keepAll,
    status: 'running',
    startedAt: new Date().toISOString(),
    plan: { file: basename(plan.path), sha256: sha256(plan.text), text: plan.text },
    page: {
      name: page.name,
      requests: page.requests,
      ...(page.bytes !== undefined && { bytes: page.bytes }),
      ...(page.manifestText !== undefined && { sha256: sha256(page.manifestText) }),
    },
    profiles: plan.profiles.map(({ name, text }) => ({ name, sha256: sha256(text), text })),
    arms: [...plan.arms],
    environment: machine,
  };
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
