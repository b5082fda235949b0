import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import type { Browser } from 'puppeteer-core';
import type { WarmPage } from './job.js';

/**
 * Loads a page that shares nothing with the one to come, so that starting the browser is not part of the load's time: another host at
 * another port, served by a server of its own at the browser's end of the link, which is gone before the load begins. It comes over the
 * arm's protocol, or what that costs a browser once would be left to the load.
 */
export async function warm(browser: Browser, { command, origin }: WarmPage, timeoutSeconds: number): Promise<void> {
  const [program, ...args] = command as [string, ...string[]];
  const server = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(server, 'exit');
  const end = (): void => void server.kill();
  // A load that is interrupted ends at once, by `process.exit`.
  process.once('exit', end);
  try {
    const address = await addressOf(createInterface({ input: server.stderr }));
    server.stderr.resume();
    const page = await browser.newPage();
    await page.goto(origin === undefined ? `http://${address}/` : `https://${origin}/`, {
      waitUntil: 'load',
      timeout: timeoutSeconds * 1000,
    });
    // Two frames: by then one has been drawn.
    await page.evaluate(
      'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(undefined))))',
    );
    await page.close();
  } finally {
    end();
    await ended;
    process.off('exit', end);
  }
}

async function addressOf(lines: AsyncIterable<string>): Promise<string> {
  for await (const line of lines) {
    const address = /^listening on https?:\/\/(\S+)/.exec(line)?.[1];
    if (address !== undefined) return address;
  }
  throw new Error('the server of the page that warms the browser ended before it listened');
}
