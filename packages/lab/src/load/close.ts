import { setTimeout as sleep } from 'node:timers/promises';
import type { Browser } from 'puppeteer-core';

const CLOSE_SECONDS = 5;

/** Closes a browser cleanly, so that its NetLog is complete, or by force if it does not answer. */
export async function closeBrowser(browser: Browser): Promise<void> {
  const closed = browser.close().then(
    () => true,
    () => false,
  );
  const inTime = await Promise.race([closed, sleep(CLOSE_SECONDS * 1000, false, { ref: false })]);
  if (!inTime) browser.process()?.kill('SIGKILL');
}
