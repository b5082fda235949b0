import { spawnSync } from 'node:child_process';
import { ExitCode, LabError } from '../io/errors.js';
import { findOnPath, isProgram } from './programs.js';
import type { LoadJob, WarmPage } from '../load/job.js';
import { hostsOf } from './site.js';

/**
 * Host name of the page. Chromium maps it to the far end of the link; all other names fail to
 * resolve.
 */
export const HOST = 'bench.test';
export const PORT = 443;
/** Port for HTTP/1.1 without TLS. */
export const CLEAR_PORT = 80;

// Debian's /usr/bin/chromium is a shell script that adds flags; this is the program itself.
const DEBIAN_CHROMIUM = '/usr/lib/chromium/chromium';
const NAMES = ['chromium', 'chromium-browser', 'google-chrome-stable', 'google-chrome'];
const INSTALL_HINT = 'install the package chromium, or set CHROMIUM=/path/to/chromium';

export interface Browser {
  readonly path: string;
  readonly version: string;
}

/** Finds Chromium: the given path, else Debian's path, else the PATH. */
export function findBrowser(given: string | undefined): Browser {
  const path = given ?? [DEBIAN_CHROMIUM].find(isProgram) ?? findOnPath(NAMES);
  if (path === undefined)
    throw new LabError(ExitCode.Unavailable, 'cannot find Chromium', INSTALL_HINT);
  if (!isProgram(path)) {
    throw new LabError(
      ExitCode.Unavailable,
      `Chromium: ${path} does not exist or is not executable`,
      INSTALL_HINT,
    );
  }
  const run = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 20_000 });
  const version = /\d+(\.\d+){3}/.exec(run.stdout)?.[0];
  if (run.status !== 0 || version === undefined) {
    throw new LabError(
      ExitCode.Unavailable,
      `${path} --version printed no version of Chromium`,
      INSTALL_HINT,
    );
  }
  return { path, version };
}

/**
 * Returns Chromium's arguments for a load: fixed ones, and those that permit only the arm's
 * protocol.
 */
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
    // QUIC accepts a private root only for forced origins, and only through this list.
    ...(job.spki === undefined ? [] : [`--ignore-certificate-errors-spki-list=${job.spki}`]),
    ...(netLog === undefined ? [] : [`--log-net-log=${netLog}`]),
    ...protocolArguments(job),
  ];
}

/**
 * Makes the cache too small for any response, so that a repeat visit requests the whole page again.
 * Clearing the cache through the developer tools would also make the browser forget `Alt-Svc`.
 */
const NO_CACHE = ['--disk-cache-size=1'];
/** Enables TLS early data over TCP; over QUIC Chromium has it anyway. */
const TCP_EARLY_DATA = 'EnableTLS13EarlyData';
/** Features that turn http:// into https://, which would break the arm without TLS. */
const UPGRADES = 'HttpsUpgrades,HttpsFirstBalancedMode,HttpsFirstBalancedModeAutoEnable';

function resolverArguments({ discovery, origins, serverAddress, warmPage }: LoadJob): string[] {
  // Resolver rules would override DNS, where the HTTPS record is.
  if (discovery === 'https-record' || serverAddress === undefined) return [];
  // Chromium contacts its vendor's hosts at start in spite of its switches. Those names do not
  // resolve here.
  const rules = [
    ...origins.map((origin) => `MAP ${origin} ${serverAddress}:${serverPort(origin)}`),
    ...(warmPage === undefined
      ? []
      : [`MAP ${warmPage.origin ?? '127.0.0.1'} ${warmAddress(warmPage)}`]),
    'MAP * ~NOTFOUND',
  ];
  return [`--host-resolver-rules=${rules.join(', ')}`];
}

/** The warm-up page is at the browser's own end. */
function warmAddress({ origin }: WarmPage): string {
  return origin === undefined ? '127.0.0.1' : origin.replace(/^.*:/, '127.0.0.1:');
}

/** The server has one port with TLS and one without, whatever ports a recorded page used. */
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
      // The switch makes certificates acceptable for QUIC on its hosts; on an unused port it forces
      // nothing.
      return [
        `--origin-to-force-quic-on=${hostsOf({ origins })
          .map((host) => `${host}:1`)
          .join(',')}`,
      ];
  }
}
