import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TimeoutError, type Browser, type Page } from 'puppeteer-core';
import { findBrowser } from '../browser.js';
import { ExitCode, LabError, messageOf } from '../errors.js';
import { requireFree } from '../output-folder.js';
import type { Capture } from './exchange.js';
import { harOf, readHar } from './har.js';
import type { CaptureOptions, CaptureRequest } from './options.js';
import { Recorder } from './recorder.js';
import type { Recording } from './recording.js';
import { writeCapture } from './write.js';
import { closeBrowser } from '../load/close.js';
import { confinementInWords, findConfinement, launchBrowser, makeFolderFor } from '../sandbox.js';
import { removeFolder } from '../scratch.js';

/** Does what the command `capture` was asked for. `warn` takes a line for the user. */
export async function capture(
  request: CaptureRequest,
  signal: AbortSignal,
  warn: (line: string) => void,
): Promise<Recording | undefined> {
  requireFree(request.out);
  if (request.kind === 'har') return writeCapture(readHar(request.har), request.out, request.keepCookies);
  const { options, out } = request;
  const captured = await capturePage(options, signal, warn);
  if (captured === undefined) return undefined;
  return writeCapture(captured.capture, out, options.keepCookies, captured.har);
}

/** Loads the page in a browser of its own; undefined if it was interrupted. */
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
      await load(browser, recorder, options, signal, warn);
      const { requests, exchanges, notes } = await recorder.result();
      if (signal.aborted) return undefined;
      const capture = {
        url: options.url,
        capturedAt: startedAt.toISOString(),
        browser: `Chromium ${version}`,
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

/** The page is a stranger's: where Chromium has no sandbox for it, the user has to know. */
async function launch(
  chromium: string,
  scratch: string,
  options: CaptureOptions,
  warn: (line: string) => void,
): Promise<Browser> {
  const confinement = await findConfinement(chromium, scratch);
  if (!confinement.sandbox) {
    warn(`Chromium's sandbox is ${confinementInWords(confinement)}; capture pages that you do not trust elsewhere`);
  }
  const folder = makeFolderFor(confinement, join(scratch, 'browser-'));
  try {
    return await launchBrowser({ chromium, confinement, folder, args: captureArguments(options) });
  } catch (thrown) {
    throw new LabError(ExitCode.Unavailable, `Chromium did not start: ${messageOf(thrown).split('\n')[0] ?? ''}`);
  }
}

/** Chromium's arguments for a capture: the web as it is, but for what the user says of hosts and certificates. */
export function captureArguments({ resolverRules, spki, insecureCertificate }: CaptureOptions): string[] {
  return [
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // Frames of other sites would be in processes of their own, and requests would move between two sessions.
    '--disable-site-isolation-trials',
    '--disable-features=IsolateOrigins,site-per-process',
    ...(resolverRules.length === 0 ? [] : [`--host-resolver-rules=${resolverRules.join(', ')}`]),
    ...(spki === undefined ? [] : [`--ignore-certificate-errors-spki-list=${spki}`]),
    ...(insecureCertificate ? ['--ignore-certificate-errors'] : []),
  ];
}

async function load(
  browser: Browser,
  recorder: Recorder,
  options: CaptureOptions,
  signal: AbortSignal,
  warn: (line: string) => void,
): Promise<void> {
  const [first] = await browser.pages();
  const page = first ?? (await browser.newPage());
  const session = await page.createCDPSession();
  await session.send('Page.enable');
  await recorder.attach(session);
  await navigate(page, recorder, options, warn);
  await sleep(options.waitMilliseconds, undefined, { signal }).catch(() => undefined);
  const until = performance.now() + options.waitMilliseconds;
  while (!recorder.settled() && performance.now() < until && !signal.aborted) await sleep(20);
}

async function navigate(
  page: Page,
  recorder: Recorder,
  { url, timeoutSeconds }: CaptureOptions,
  warn: (line: string) => void,
): Promise<void> {
  try {
    await page.goto(url, { waitUntil: 'load', timeout: timeoutSeconds * 1000 });
  } catch (thrown) {
    if (thrown instanceof TimeoutError && recorder.failureOf(url) === undefined) {
      const { requests } = await recorder.result();
      if (requests > 0) {
        warn(`${url} had no load event in ${timeoutSeconds} s; what came until then is recorded`);
        return;
      }
    }
    const reason = recorder.failureOf(url) ?? messageOf(thrown).split('\n')[0] ?? '';
    throw new LabError(
      ExitCode.Unavailable,
      `${url} cannot be loaded: ${reason}`,
      'check the URL, --resolve and --spki',
    );
  }
}
