import { spawnSync } from 'node:child_process';
import { ExitCode, LabError } from './errors.js';
import { findOnPath, isProgram } from './programs.js';
import type { LoadJob, WarmPage } from './load/job.js';
import { hostsOf } from './site.js';

/** The name under which the page is loaded. Chromium maps it to the far end of the link, and every other name to nothing. */
export const HOST = 'bench.test';
export const PORT = 443;
/** Of HTTP/1.1 in clear. */
export const CLEAR_PORT = 80;

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
export function browserArguments(job: LoadJob, netLog: string | undefined): string[] {
  return [
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    `--enable-features=${job.visit === 'early-data' ? TCP_EARLY_DATA : ''}`,
    `--disable-features=${UPGRADES}`,
    ...(job.visit === 'first' ? [] : NO_CACHE),
    ...resolverArguments(job),
    // QUIC accepts a root that is not public only for forced origins, and only by this list.
    ...(job.spki === undefined ? [] : [`--ignore-certificate-errors-spki-list=${job.spki}`]),
    ...(netLog === undefined ? [] : [`--log-net-log=${netLog}`]),
    ...protocolArguments(job),
  ];
}

/**
 * A cache too small for anything, so that a second visit asks for all of the page again. Clearing the cache by the developer
 * tools would make the browser forget `Alt-Svc` too.
 */
const NO_CACHE = ['--disk-cache-size=1'];
/** Early data of TLS over TCP; over QUIC Chromium has it anyway. */
const TCP_EARLY_DATA = 'EnableTLS13EarlyData';
/** What turns http:// into https://, which the arm in clear must not have. */
const UPGRADES = 'HttpsUpgrades,HttpsFirstBalancedMode,HttpsFirstBalancedModeAutoEnable';

function resolverArguments({ discovery, origins, serverAddress, warmPage }: LoadJob): string[] {
  // Rules would go before DNS, where the HTTPS record is.
  if (discovery === 'https-record' || serverAddress === undefined) return [];
  // In spite of its switches Chromium asks for its maker's hosts at start. Those names do not exist here.
  const rules = [
    ...origins.map((origin) => `MAP ${origin} ${serverAddress}:${serverPort(origin)}`),
    ...(warmPage === undefined ? [] : [`MAP ${warmPage.origin ?? '127.0.0.1'} ${warmAddress(warmPage)}`]),
    'MAP * ~NOTFOUND',
  ];
  return [`--host-resolver-rules=${rules.join(', ')}`];
}

/** The page before the load is at the browser's own end. */
function warmAddress({ origin }: WarmPage): string {
  return origin === undefined ? '127.0.0.1' : origin.replace(/^.*:/, '127.0.0.1:');
}

/** The server has one port for TLS and one in clear, whatever ports a recorded page had. */
function serverPort(origin: string): number {
  return origin.endsWith(`:${CLEAR_PORT}`) ? CLEAR_PORT : PORT;
}

function protocolArguments({ protocol, origins, spki, warmPage }: LoadJob): string[] {
  switch (protocol) {
    case 'http':
    case 'h1':
      return ['--disable-quic', '--disable-http2'];
    case 'h2':
      return ['--disable-quic'];
    case 'h3':
      // Without the port Chromium ignores the switch and uses HTTP/2.
      return [`--origin-to-force-quic-on=${[...origins, warmPage?.origin ?? []].flat().join(',')}`];
    case 'auto':
      if (spki === undefined) return [];
      // The switch makes certificates good enough for QUIC on its hosts; on a port that is not used it forces nothing.
      return [
        `--origin-to-force-quic-on=${hostsOf({ origins })
          .map((host) => `${host}:1`)
          .join(',')}`,
      ];
  }
}
