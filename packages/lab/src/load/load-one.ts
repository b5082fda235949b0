/**
 * Loads the page once in a fresh browser and writes what it observed. Runs behind the link, as the
 * command of `pronghorn link`, with the path of a job file as its argument. Exit code 0 means that
 * the result is written, however the load ended.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TimeoutError, type Browser, type Page } from 'puppeteer-core';
import { browserArguments } from '../run/browser.js';
import { messageOf } from '../io/errors.js';
import type { BrowserSide } from '../samples/sample.js';
import { launchBrowser } from '../run/sandbox.js';
import { closeBrowser } from './close.js';
import { cpuBetween, readProcesses } from './cpu.js';
import { completenessOf } from './expected.js';
import { JobFile, type LoadJob } from './job.js';
import { notifyLink } from './link-control.js';
import { readQuicCongestion } from './quic-congestion.js';
import { NameServer } from './name-server.js';
import { outcomeOf, type LoadEnd } from './outcome.js';
import { RequestLog } from './page-requests.js';
import { Screens } from './screens.js';
import { Wait } from './settle.js';
import {
  prepareTimeline,
  readLoadEvent,
  readNavigationStart,
  readTimeline,
} from './page-timeline.js';
import { warm } from './warm.js';

const SETTLE_POLL_MS = 10;
/** Additional time for the browser's answers beyond a load's timeout. */
const PROTOCOL_SECONDS = 60;

async function main(): Promise<void> {
  const path = process.argv[2];
  if (path === undefined) throw new Error('usage: load-one.js JOB.json');
  const job = JSON.parse(readFileSync(path, 'utf8')) as LoadJob;
  const { discovery, resolverAddress, serverAddress } = job;
  const ours =
    discovery === 'https-record' && resolverAddress !== undefined && serverAddress !== undefined;
  const names = ours
    ? await NameServer.start({ ...job, resolverAddress, serverAddress })
    : undefined;
  const browser = await launch(job);
  let seen: BrowserSide;
  try {
    // In a repeat visit the visit before has warmed the browser.
    if (job.warmPage !== undefined && job.visit === 'first')
      await warm(browser, job.warmPage, job.timeoutSeconds);
    seen = job.visit === 'first' ? await load(browser, job) : await loadAgain(browser, job);
  } finally {
    await closeBrowser(browser);
    await names?.stop();
  }
  const quicCongestion = job.watched ? await readQuicCongestion(netLogOf(job)) : undefined;
  writeResult(job, {
    ...seen,
    ...(quicCongestion !== undefined && { quicCongestion }),
    ...(names !== undefined && { httpsRecordQueries: names.httpsQueries }),
  });
}

async function launch(job: LoadJob): Promise<Browser> {
  const netLog = job.watched ? netLogOf(job) : undefined;
  const { chromium, confinement, folder } = job;
  const browser = await launchBrowser({
    ...{ chromium, confinement, folder },
    // A document's first byte may take as long as a load, and half of the plans allow more time
    // than the library's default.
    protocolTimeout: (job.timeoutSeconds + PROTOCOL_SECONDS) * 1000,
    args: browserArguments(job, netLog),
    writes: netLog === undefined ? [] : [netLog],
  });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(signal, () => {
      browser.process()?.kill('SIGKILL');
      process.exit(1);
    });
  }
  return browser;
}

/**
 * Makes a visit of which only the second load counts: by then the browser knows the server, but has
 * no connection and nothing of the page.
 */
async function loadAgain(browser: Browser, job: LoadJob): Promise<BrowserSide> {
  const page = await browser.newPage();
  const before = await navigate(page, job);
  if (before.kind !== 'loaded') {
    const reason =
      before.kind === 'timeout' ? `no load event in ${before.seconds} s` : before.error;
    return {
      outcome: 'failed',
      reason: `the first load of the repeat visit failed: ${reason}`,
      resources: [],
      requests: [],
    };
  }
  // Leaves the page, so that its memory cache is dropped too.
  await page.goto('about:blank');
  await closeConnections(browser);
  await page.close();
  return load(browser, job);
}

/** Closes all connections, but keeps the TLS sessions learned on them. */
async function closeConnections(browser: Browser): Promise<void> {
  const page = await browser.newPage();
  await page.goto('chrome://net-internals/#sockets');
  await page.locator('#sockets-view-flush-button').click();
  await page.close();
}

async function load(browser: Browser, job: LoadJob): Promise<BrowserSide> {
  const page = await browser.newPage();
  const session = await page.createCDPSession();
  const log = new RequestLog();
  await log.attach(session);
  await prepareTimeline(page);
  const screens = job.watched
    ? await Screens.start(session, join(job.folder, JobFile.Screens))
    : undefined;
  const before = await readProcesses(browser);
  // A counted load finds the link as its seed defines it, whatever the browser has sent before:
  // jitter, outages and losses begin with its first packet.
  const isBehindLink = job.serverAddress !== undefined;
  if (isBehindLink) notifyLink('start');
  const startedMs = performance.now();
  const end = await navigate(page, job);
  const after = await readProcesses(browser);
  const loadEventMs = end.kind === 'loaded' ? await readLoadEvent(page, session) : undefined;
  if (end.kind === 'loaded') await settle(log, job, startedMs, loadEventMs);
  // After an incomplete load neither may answer; running both at once limits the wait.
  const [timeline, navigationStartMonotonicMs] = await Promise.all([
    readTimeline(page, job.lookMs),
    readNavigationStart(session),
  ]);
  // Everything that decides completeness, last byte and paints has crossed the link by now.
  if (isBehindLink) notifyLink('end');
  await screens?.stop(timeline.timeOriginMs);
  const requests = log.requests();
  return {
    ...outcomeOf(end, requests, job.expected, loadEventMs),
    ...timeline,
    requests,
    cpuSeconds: cpuBetween(before, after),
    ...(navigationStartMonotonicMs !== undefined && { navigationStartMonotonicMs }),
  };
}

async function navigate(page: Page, job: LoadJob): Promise<LoadEnd> {
  try {
    await page.goto(job.url, { waitUntil: 'load', timeout: job.timeoutSeconds * 1000 });
    return { kind: 'loaded' };
  } catch (thrown) {
    if (thrown instanceof TimeoutError) return { kind: 'timeout', seconds: job.timeoutSeconds };
    return { kind: 'failed', error: messageOf(thrown) };
  }
}

/**
 * Waits for the ends of the requests that count: those in flight at the load event, such as from
 * scripts and workers, for as long as the load may take, so that a slow link does not make a load
 * incomplete; and missing ones.
 */
async function settle(
  log: RequestLog,
  { expected, timeoutSeconds }: LoadJob,
  startedMs: number,
  loadEventMs: number | undefined,
): Promise<void> {
  const untilMs = startedMs + timeoutSeconds * 1000;
  const recordedMs = expected.kind === 'recording' ? expected.loadSeconds * 1000 : 0;
  const wait = new Wait({ startedMs, recordedMs, untilMs }, performance.now());
  while (!wait.isOver(completenessOf(log.requests(), expected, loadEventMs), performance.now()))
    await sleep(SETTLE_POLL_MS);
}

function netLogOf(job: LoadJob): string {
  return join(job.folder, JobFile.NetLog);
}

function writeResult(job: LoadJob, seen: BrowserSide): void {
  const path = join(job.folder, JobFile.Result);
  writeFileSync(`${path}.partial`, JSON.stringify(seen));
  renameSync(`${path}.partial`, path);
}

try {
  await main();
  process.exit(0);
} catch (thrown) {
  process.stderr.write(
    `error: the browser process failed: ${messageOf(thrown).split('\n')[0] ?? ''}\n`,
  );
  process.exit(1);
}
