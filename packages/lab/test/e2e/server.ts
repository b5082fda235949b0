import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { TestContext } from 'node:test';
import { findPronghorn } from '../../src/run/programs.js';

/** A test's page server, and what a browser needs to reach it. */
export interface Server {
  /** Address and port. */
  readonly address: string;
  readonly spki: string;
}

/**
 * Serves a page or a recording on a separate port until the test ends; its certificate is kept in
 * `home`.
 */
export async function startServer(
  t: TestContext,
  command: 'serve' | 'replay',
  folder: string,
  home: string,
  ...more: readonly string[]
): Promise<Server> {
  const program = findPronghorn(process.env.PRONGHORN).path;
  const server = spawn(
    program,
    [command, folder, '--listen', '127.0.0.1:0', '--grace', '0', ...more],
    {
      env: { ...process.env, HOME: home, XDG_DATA_HOME: '', XDG_STATE_HOME: '' },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  t.after(() => end(server));
  let address: string | undefined;
  for await (const line of createInterface({ input: server.stderr })) {
    address ??= /listening on https:\/\/(\S+)/.exec(line)?.[1];
    const spki = /SPKI SHA-256 (\S+)/.exec(line)?.[1];
    if (address !== undefined && spki !== undefined) {
      server.stderr.resume();
      return { address, spki };
    }
  }
  throw new Error(`pronghorn ${command} ended`);
}

async function end(server: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => server.once('close', resolve));
  server.kill();
  await ended;
}
