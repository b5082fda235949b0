import { spawn } from 'node:child_process';
import { once } from 'node:events';
import process from 'node:process';
import { createInterface } from 'node:readline';
import type { Browser } from 'puppeteer-core';
import type { WarmPage } from './job.js';

/**
 * Loads a page that shares nothing with the measured one, so that the browser's start is not part
 * of the load's time: another host and port, with a server of its own at the browser's end of the
 * link that is gone before the load begins. It uses the arm's protocol, so that first-use costs of
 * the protocol do not fall on the load.
 */
export async function warm(
  browser: Browser,
  { command, origin }: WarmPage,
  timeoutSeconds: number,
): Promise<void> {
  const [program, ...args] = command as [string, ...string[]];
  const server = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(server, 'exit');
  const end = (): void => void server.kill();
  // An interrupted load ends at once, by `process.exit`.
  process.once('exit', end);
  try {
    const address = await addressOf(createInterface({ input: server.stderr }));
    server.stderr.resume();
    const page = await browser.newPage();
    await page.goto(origin === undefined ? `http://${address}/` : `https://${origin}/`, {
      waitUntil: 'load',
      timeout: timeoutSeconds * 1000,
    });
    // After two frames, one has been drawn.
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
  throw new Error('the server of the warm-up page exited before it listened');
}
