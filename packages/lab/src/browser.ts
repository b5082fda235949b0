import { spawnSync } from 'node:child_process';
import { ExitCode, LabError } from './errors.js';
import { findOnPath, isProgram } from './programs.js';
import type { Protocol } from './plan.js';

/** The name under which the page is loaded. Chromium maps it to the far end of the link, and every other name to nothing. */
export const HOST = 'bench.test';
export const PORT = 443;

// Debian's /usr/bin/chromium is a shell script that adds flags of its own; the program is behind it.
const DEBIAN_CHROMIUM = '/usr/lib/chromium/chromium';
const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
const INSTALL_HINT = 'install the package chromium, or set CHROMIUM=/path/to/chromium';

export interface Browser {
  readonly path: string;
  readonly version: string;
}

/** Finds Chromium: the path that was given, else Debian's place for it, else the PATH. */
export function findBrowser(given: string | undefined): Browser {
  const path = given ?? [DEBIAN_CHROMIUM].find(isProgram) ?? findOnPath(NAMES);
  if (path === undefined) throw new LabError(ExitCode.Unavailable, 'Chromium is not installed', INSTALL_HINT);
  if (!isProgram(path)) {
    throw new LabError(ExitCode.Unavailable, `Chromium: ${path} is not there or not executable`, INSTALL_HINT);
  }
  const run = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 20_000 });
  const version = /\d+(\.\d+){3}/.exec(run.stdout)?.[0];
  if (run.status !== 0 || version === undefined) {
    throw new LabError(ExitCode.Unavailable, `${path} --version names no version of Chromium`, INSTALL_HINT);
  }
  return { path, version };
}

/** Chromium's arguments for a load: fixed ones, and those that leave it no other protocol than the arm's. */
export function browserArguments(protocol: Protocol, serverAddress: string, spki: string, netLog?: string): string[] {
  return [
    '--no-sandbox', // root needs it, and the only page that is loaded is ours
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // In spite of the switches above Chromium asks for its maker's hosts at start. Those names do not exist here.
    `--host-resolver-rules=MAP ${HOST} ${serverAddress}, MAP * ~NOTFOUND`,
    // QUIC accepts a root that is not public only for forced origins, and only by this list.
    `--ignore-certificate-errors-spki-list=${spki}`,
    ...(netLog === undefined ? [] : [`--log-net-log=${netLog}`]),
    ...protocolArguments(protocol),
  ];
}

function protocolArguments(protocol: Protocol): string[] {
  switch (protocol) {
    case 'h1':
      return ['--disable-quic', '--disable-http2'];
    case 'h2':
      return ['--disable-quic'];
    case 'h3':
      // Without the port Chromium ignores the switch and uses HTTP/2.
      return [`--origin-to-force-quic-on=${HOST}:${PORT}`];
  }
}
