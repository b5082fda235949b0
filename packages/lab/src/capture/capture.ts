import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  TargetType,
  TimeoutError,
  type Browser,
  type CDPSession,
  type HTTPResponse,
  type Page,
} from 'puppeteer-core';
import { findBrowser } from '../run/browser.js';
import { ExitCode, LabError, messageOf } from '../io/errors.js';
import { closeBrowser } from '../load/close.js';
import { inTime, readLoadEvent } from '../load/page-timeline.js';
import { requireFree } from '../io/output-folder.js';
import {
  describeConfinement,
  findConfinement,
  launchBrowser,
  makeFolderFor,
} from '../run/sandbox.js';
import { removeFolder } from '../io/scratch.js';
import type { Capture, LoadedDocument } from './exchange.js';
import { harOf } from './har-format.js';
import type { CaptureOptions, CaptureRequest } from './options.js';
import { readHar } from './read-har.js';
import { Recorder } from './recorder.js';
import type { Recording } from './recording.js';
import { writeCapture } from './write-capture.js';

/** Runs the command `capture`. `warn` prints a line for the user. */
export async function capture(
  request: CaptureRequest,
  signal: AbortSignal,
  warn: (line: string) => void,
): Promise<Recording | undefined> {
  requireFree(request.out);
  if (request.kind === 'har') {
    const read = readHar(request.har);
    if (read.document !== undefined) checkStatus(read.url, read.document, request.allowStatus);
    warnAboutRedirect(read, warn);
    return writeCapture(read, request.out, request.keepCookies);
  }
  const { options, out } = request;
  const captured = await capturePage(options, signal, warn);
  if (captured === undefined) return undefined;
  warnAboutRedirect(captured.capture, warn);
  return writeCapture(captured.capture, out, options.keepCookies, captured.har);
}

/** Refuses an error page, which has the shape of a page but is rarely meant to be measured. */
function checkStatus(
  asked: string,
  { url, status }: LoadedDocument,
  allowed: number | undefined,
): void {
  if ((status >= 200 && status < 300) || status === allowed) return;
  const led = url === asked ? '' : ` redirects to ${url}, which`;
  throw new LabError(
    ExitCode.Unavailable,
    `${asked}${led} has status ${status}`,
    `use --allow-status ${status} to record it anyway`,
  );
}

function warnAboutRedirect({ url, document }: Capture, warn: (line: string) => void): void {
  if (document !== undefined && document.url !== url) {
    warn(
      `${url} redirects to ${document.url}, which is recorded; check that it is not a login or consent page`,
    );
  }
}

/** Loads the page in a separate browser; undefined if interrupted. */
async function capturePage(
  options: CaptureOptions,
  signal: AbortSignal,
  warn: (line: string) => void,
): Promise<{ capture: Capture; har: string } | undefined> {
  const { path, version } = findBrowser(options.chromium);
  const scratch = mkdtempSync(join(tmpdir(), 'pronghorn-lab-capture-'));
  try {
    const browser = await launch(path, scratch, options, warn);
    const kill = (): void => void browser.process()?.kill('SIGKILL');
    signal.addEventListener('abort', kill);
    try {
      signal.throwIfAborted();
      const startedAt = new Date();
      const recorder = new Recorder();
      const document = await load(browser, recorder, options, signal, warn);
      const { requests, exchanges, notes } = await recorder.result();
      if (signal.aborted) return undefined;
      const { loadSeconds } = recorder;
      const capture = {
        url: options.url,
        capturedAt: startedAt.toISOString(),
        browser: `Chromium ${version}`,
        ...(document !== undefined && { document }),
        ...(loadSeconds !== undefined && { loadSeconds }),
        requests,
        exchanges,
        notes,
      };
      return { capture, har: harOf(recorder.messages(), exchanges, options.keepCookies) };
    } catch (thrown) {
      if (signal.aborted) return undefined;
      throw thrown;
    } finally {
      signal.removeEventListener('abort', kill);
      await closeBrowser(browser);
    }
  } finally {
    await removeFolder(scratch);
  }
}

/** Starts the browser. The page is untrusted, so the user is warned if Chromium has no sandbox. */
async function launch(
  chromium: string,
  scratch: string,
  options: CaptureOptions,
  warn: (line: string) => void,
): Promise<Browser> {
  const confinement = await findConfinement(chromium, scratch);
  if (!confinement.sandbox) {
    warn(
      `Chromium's sandbox is ${describeConfinement(confinement)}; capture untrusted pages on another machine`,
    );
  }
  const folder = makeFolderFor(confinement, join(scratch, 'browser-'));
  try {
    return await launchBrowser({ chromium, confinement, folder, args: captureArguments(options) });
  } catch (thrown) {
    throw new LabError(
      ExitCode.Unavailable,
      `Chromium did not start: ${messageOf(thrown).split('\n')[0] ?? ''}`,
    );
  }
}

/**
 * Returns Chromium's arguments for a capture: defaults except for the user's hosts and
 * certificates.
 */
export function captureArguments({
  resolverRules,
  spki,
  insecureCertificate,
}: CaptureOptions): string[] {
  return [
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // Otherwise frames of other sites would be in other processes, and requests would move between
    // two sessions.
    '--disable-site-isolation-trials',
    '--disable-features=IsolateOrigins,site-per-process',
    ...(resolverRules.length === 0 ? [] : [`--host-resolver-rules=${resolverRules.join(', ')}`]),
    ...(spki === undefined ? [] : [`--ignore-certificate-errors-spki-list=${spki}`]),
    ...(insecureCertificate ? ['--ignore-certificate-errors'] : []),
  ];
}

/** Loads the page and keeps recording for a while; returns the document if the load event came. */
async function load(
  browser: Browser,
  recorder: Recorder,
  options: CaptureOptions,
  signal: AbortSignal,
  warn: (line: string) => void,
): Promise<LoadedDocument | undefined> {
  const [first] = await browser.pages();
  const page = first ?? (await browser.newPage());
  const session = await page.createCDPSession();
  await noteOtherTargets(browser, session, recorder);
  await session.send('Page.enable');
  await recorder.attach(session);
  // A service worker's responses do not cross the network, and a replay has no such worker.
  await session.send('Network.setBypassServiceWorker', { bypass: true });
  const response = await navigate(page, recorder, options, warn);
  let document: LoadedDocument | undefined;
  if (response !== undefined) {
    const loadEventMs = await readLoadEvent(page, session);
    if (loadEventMs !== undefined) recorder.loaded(loadEventMs / 1000);
    const title = (await inTime(page.title()))?.trim();
    document = {
      url: response.url().split('#')[0] as string,
      status: response.status(),
      ...(title !== undefined && title !== '' && { title }),
    };
    checkStatus(options.url, document, options.allowStatus);
  }
  await sleep(options.waitMilliseconds, undefined, { signal }).catch(() => undefined);
  const until = performance.now() + options.waitMilliseconds;
  while (!recorder.settled() && performance.now() < until && !signal.aborted) await sleep(20);
  return document;
}

/**
 * Notes what the page starts but its session does not cover. A service worker is noted as soon as
 * the page registers it, even if that fails.
 */
async function noteOtherTargets(
  browser: Browser,
  session: CDPSession,
  recorder: Recorder,
): Promise<void> {
  session.on('ServiceWorker.workerVersionUpdated', ({ versions }) => {
    for (const { scriptURL } of versions) recorder.leaveOut(scriptURL, 'a service worker');
  });
  await session.send('ServiceWorker.enable');
  browser.on('targetcreated', (target) => {
    if (target.type() === TargetType.SHARED_WORKER)
      recorder.leaveOut(target.url(), 'a shared worker');
    if (target.type() === TargetType.PAGE)
      recorder.leaveOut(target.url(), 'a window that the page opened');
  });
}

/**
 * Navigates and returns the document's response; undefined if the load event did not come in time.
 */
async function navigate(
  page: Page,
  recorder: Recorder,
  { url, timeoutSeconds }: CaptureOptions,
  warn: (line: string) => void,
): Promise<HTTPResponse | undefined> {
  try {
    const response = await page.goto(url, { waitUntil: 'load', timeout: timeoutSeconds * 1000 });
    if (response !== null) return response;
  } catch (thrown) {
    if (thrown instanceof TimeoutError && recorder.documentFailure() === undefined) {
      const { requests } = await recorder.result();
      if (requests > 0) {
        warn(
          `${url} had no load event within ${timeoutSeconds} s; the responses until then are recorded`,
        );
        return undefined;
      }
    }
    const reason = recorder.documentFailure() ?? messageOf(thrown).split('\n')[0] ?? '';
    throw new LabError(
      ExitCode.Unavailable,
      `cannot load ${url}: ${reason}`,
      'check the URL, --resolve and --spki',
    );
  }
  throw new LabError(
    ExitCode.Unavailable,
    `cannot load ${url}: no document received`,
    'check the URL',
  );
}
