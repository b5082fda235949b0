import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { CLEAR_PORT, PORT } from './browser.js';
import { ExitCode, LabError } from '../io/errors.js';
import { foldersAbove } from '../io/bundled-file.js';
import type { Arm, Congestion, Protocol, ReferenceName } from '../campaign/plan.js';
import { findOnPath, isProgram } from './programs.js';
import type { Placeholder, Server } from './server-command.js';

/** A third-party server as installed on this machine. */
export interface Reference {
  readonly name: ReferenceName;
  readonly path: string;
  readonly version: string;
  readonly protocols: readonly Protocol[];
}

interface Known {
  /** Environment variable with its path. */
  readonly variable: string;
  readonly install: string;
  /** Path below a folder of build results. */
  readonly built?: string;
  readonly version: { readonly args: readonly string[]; readonly pattern: RegExp };
  readonly protocols: (versionText: string) => Protocol[];
  /** Its names for QUIC controllers, if controller and initial window can be set. */
  readonly quicControllers?: Readonly<Partial<Record<Congestion, string>>>;
  /** Returns its command, after writing its configuration into `folder`. */
  readonly command: (server: Server, reference: Reference, folder: string) => string[];
}

const H2O_CONTROLLERS = { cubic: 'cubic', newreno: 'reno' } as const;

const KNOWN: Readonly<Record<ReferenceName, Known>> = {
  nghttpd: {
    variable: 'NGHTTPD',
    install: 'install the package nghttp2-server, or set NGHTTPD=/path/to/nghttpd',
    version: { args: ['--version'], pattern: /nghttp2\/(\S+)/ },
    protocols: () => ['h2'],
    command: nghttpd,
  },
  nginx: {
    variable: 'NGINX',
    install: 'install the package nginx-light, or set NGINX=/path/to/nginx',
    version: { args: ['-V'], pattern: /nginx\/(\S+)/ },
    // Debian's build has no HTTP/3.
    protocols: (text) => [
      'http',
      'h1',
      'h2',
      ...(text.includes('--with-http_v3_module') ? (['h3'] as const) : []),
    ],
    command: nginx,
  },
  caddy: {
    variable: 'CADDY',
    install: 'build it with `bench/setup caddy`, or set CADDY=/path/to/caddy',
    built: 'bench-peers/caddy',
    version: { args: ['version'], pattern: /^v?(\S+)/ },
    protocols: () => ['http', 'h1', 'h2', 'h3'],
    command: caddy,
  },
  h2o: {
    variable: 'H2O',
    install:
      'build it from source and set H2O=/path/to/h2o, or install the package h2o, which has no HTTP/3',
    version: { args: ['--version'], pattern: /h2o version (\S+)/ },
    // Debian's version predates HTTP/3.
    protocols: (text) => [
      'http',
      'h1',
      'h2',
      ...(/h2o version ([01]|2\.[0-2])\./.test(text) ? [] : (['h3'] as const)),
    ],
    quicControllers: H2O_CONTROLLERS,
    command: h2o,
  },
};

/**
 * Finds a reference server: the path in its variable, else this repository's build, else the PATH.
 */
export function findReference(name: ReferenceName): Reference {
  const { variable, install, version, protocols } = KNOWN[name];
  const given = process.env[variable];
  const path = given ?? builtHere(name) ?? findOnPath([name], [...PLACES_OF_SERVERS]);
  if (path === undefined)
    throw new LabError(ExitCode.Unavailable, `cannot find the server ${name}`, install);
  if (!isProgram(path)) {
    throw new LabError(
      ExitCode.Unavailable,
      `${name}: ${path} does not exist or is not executable`,
      install,
    );
  }
  const run = spawnSync(resolve(path), version.args, { encoding: 'utf8', timeout: 20_000 });
  const text = `${run.stdout}${run.stderr}`;
  const found = version.pattern.exec(text)?.[1];
  if (run.status !== 0 || found === undefined) {
    throw new LabError(ExitCode.Unavailable, `${path} printed no version of ${name}`, install);
  }
  return { name, path: resolve(path), version: found, protocols: protocols(text) };
}

/** Returns why a server cannot serve an arm; undefined if it can. */
export function whyNot({ name, version, protocols }: Reference, arm: Arm): string | undefined {
  const asked = arm.protocol === 'auto' ? (['h2', 'h3'] as const) : [arm.protocol];
  const missing = asked.find((protocol) => !protocols.includes(protocol));
  if (missing !== undefined)
    return `${name} ${version} has no ${missing === 'h3' ? 'HTTP/3' : missing}`;
  return undefined;
}

/**
 * Returns whether the lab can configure a reference server's QUIC for the placeholder: an initial
 * window, or a controller that it has.
 */
export function isConfigurable(
  name: ReferenceName,
  place: Placeholder,
  congestion?: Congestion,
): boolean {
  const { quicControllers } = KNOWN[name];
  if (quicControllers === undefined || (place !== 'congestion' && place !== 'initial_window'))
    return false;
  return (
    place === 'initial_window' ||
    congestion === undefined ||
    quicControllers[congestion] !== undefined
  );
}

/**
 * Returns the command line of a reference server, which finds its configuration in the load's
 * folder.
 */
export function referenceCommand(server: Server, reference: Reference): string[] {
  const folder = join(server.folder, 'server');
  mkdirSync(folder, { recursive: true });
  return KNOWN[reference.name].command(server, reference, folder);
}

/** Folders of servers on Debian that are not in an ordinary user's PATH. */
const PLACES_OF_SERVERS = ['/usr/sbin', '/usr/local/sbin'];

function builtHere(name: ReferenceName): string | undefined {
  const { built } = KNOWN[name];
  if (built === undefined) return undefined;
  const target = process.env.CARGO_TARGET_DIR;
  const targets = [
    ...(target === undefined ? [] : [resolve(target)]),
    ...foldersAbove().map((each) => join(each, 'target')),
  ];
  return targets.map((folder) => join(folder, built)).find(isProgram);
}

/** Browsers reject style sheets without their type, and not every machine has a list of types. */
const TYPES = {
  'text/html': 'html',
  'text/css': 'css',
  'text/javascript': 'js',
  'application/json': 'json',
  'image/png': 'png',
  'image/jpeg': 'jpg',
  'image/svg+xml': 'svg',
  'font/ttf': 'ttf',
  'font/woff2': 'woff2',
} as const;

/**
 * Returns the command of nghttpd. Its time-outs cannot be set: a minute for each read and write.
 */
function nghttpd(
  { address, certificate, pageFolder }: Server,
  { path }: Reference,
  folder: string,
): string[] {
  const types = join(folder, 'mime.types');
  writeFileSync(
    types,
    Object.entries(TYPES)
      .map((type) => `${type.join(' ')}\n`)
      .join(''),
  );
  return [
    ...[path, '--address', address, '--htdocs', pageFolder, `--mime-types-file=${types}`],
    ...[String(PORT), certificate.keyPath, certificate.certPath],
  ];
}

function nginx(server: Server, { path, version, protocols }: Reference, folder: string): string[] {
  const { arm, address, certificate, pageFolder, serverTimeoutSeconds } = server;
  const [major = 0, minor = 0, patch = 0] = version.split('.').map(Number);
  // From 1.25.1 on, HTTP/2 is a directive of its own.
  const newer = major > 1 || minor > 25 || (minor === 25 && patch >= 1);
  const h3 = protocols.includes('h3');
  const patience = `${serverTimeoutSeconds}s`;
  const lines = [
    'daemon off; worker_processes auto; error_log stderr error;',
    `pid ${join(folder, 'nginx.pid')};`,
    // Otherwise its workers would run as a user who may not be able to read the page.
    ...(process.getuid?.() === 0 ? ['user root;'] : []),
    'events { worker_connections 1024; }',
    'http {',
    'access_log off; sendfile on; tcp_nopush on;',
    `types { ${Object.entries(TYPES)
      .map((type) => `${type.join(' ')};`)
      .join(' ')} }`,
    ...['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (name) => `${name}_temp_path ${join(folder, name)};`,
    ),
    ...['client_header_timeout', 'client_body_timeout', 'send_timeout', 'keepalive_timeout'].map(
      (name) => `${name} ${patience};`,
    ),
    `ssl_certificate ${certificate.certPath}; ssl_certificate_key ${certificate.keyPath};`,
    'ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:tls:1m;',
    // A stream has at most its buffer in flight, by default 64 KB per round trip. The maintainers
    // advise more for long paths (github.com/nginx/nginx/issues/1712); 1 MiB is more than any part
    // of the lab's pages but the largest.
    ...(h3 ? ['quic_gso on; http3_stream_buffer_size 1m;'] : []),
    'server {',
    `listen ${address}:${PORT} ssl${newer ? '' : ' http2'};`,
    ...(newer ? ['http2 on;'] : []),
    ...(h3
      ? [`listen ${address}:${PORT} quic reuseport; add_header Alt-Svc 'h3=":${PORT}"; ma=86400';`]
      : []),
    ...(arm.protocol === 'http' ? [`listen ${address}:${CLEAR_PORT};`] : []),
    `root ${pageFolder};`,
    '}',
    '}',
  ];
  const config = join(folder, 'nginx.conf');
  writeFileSync(config, `${lines.join('\n')}\n`);
  return [path, '-e', 'stderr', '-p', folder, '-c', config];
}

function caddy(server: Server, { path }: Reference, folder: string): string[] {
  const { arm, address, certificate, pageFolder, serverTimeoutSeconds } = server;
  const patience = `${serverTimeoutSeconds}s`;
  const site = [`bind ${address}`, `root * ${pageFolder}`, 'file_server'];
  const lines = [
    '{',
    'admin off',
    'auto_https off',
    'persist_config off',
    'skip_install_trust',
    'log {\noutput discard\n}',
    'servers {',
    'protocols h1 h2 h3',
    `timeouts {\nread_body ${patience}\nread_header ${patience}\nwrite ${patience}\nidle ${patience}\n}`,
    '}',
    '}',
    // Accepts any host.
    `https://:${PORT} {`,
    `tls ${certificate.certPath} ${certificate.keyPath}`,
    ...site,
    '}',
    ...(arm.protocol === 'http' ? [`http://:${CLEAR_PORT} {`, ...site, '}'] : []),
  ];
  const config = join(folder, 'Caddyfile');
  writeFileSync(config, `${lines.join('\n')}\n`);
  // Otherwise it would store this in the user's folders.
  const kept = [`XDG_DATA_HOME=${folder}`, `XDG_CONFIG_HOME=${folder}`];
  return ['env', ...kept, path, 'run', '--adapter', 'caddyfile', '--config', config];
}

/**
 * Returns the command of h2o. Its defaults are what its documentation recommends: segmentation
 * offload, style sheets and scripts before pictures, and little unsent data in the kernel over long
 * paths (h2o.examp1e.net/configure/http2_directives.html#latency-optimization). File types are its
 * defaults too, since they determine these priorities. The private key stays in the server's
 * process: with `neverbleed` each handshake would wait for a second process.
 */
function h2o(server: Server, { path, protocols }: Reference, folder: string): string[] {
  const { arm, address, certificate, pageFolder, serverTimeoutSeconds } = server;
  const h3 = protocols.includes('h3');
  const timeouts = ['handshake-timeout', 'http1-request-timeout', 'http2-idle-timeout'];
  const newer = ['http1-request-io-timeout', 'http3-idle-timeout'];
  // Without this, h2o waits on shutdown for clients that are gone.
  const graceful = [
    'http2-graceful-shutdown-timeout',
    ...(h3 ? ['http3-graceful-shutdown-timeout'] : []),
  ];
  const lines = [
    // Otherwise it would run as a user who may not be able to read the page.
    ...(process.getuid?.() === 0 ? ['user: root'] : []),
    `temp-buffer-path: ${JSON.stringify(folder)}`,
    ...[...timeouts, ...(h3 ? newer : [])].map((name) => `${name}: ${serverTimeoutSeconds}`),
    ...graceful.map((name) => `${name}: 1`),
    'listen: &tls',
    `  host: ${address}`,
    `  port: ${PORT}`,
    '  ssl:',
    `    certificate-file: ${JSON.stringify(certificate.certPath)}`,
    `    key-file: ${JSON.stringify(certificate.keyPath)}`,
    '    neverbleed: OFF',
    '    ocsp-update-interval: 0',
    ...(h3 ? ['listen:', '  <<: *tls', '  type: quic', ...h2oWindow(arm)] : []),
    ...(arm.protocol === 'http' ? ['listen:', `  host: ${address}`, `  port: ${CLEAR_PORT}`] : []),
    'hosts:',
    '  default:',
    '    paths:',
    '      "/":',
    `        file.dir: ${JSON.stringify(pageFolder)}`,
    ...(h3 ? [`        header.set: 'alt-svc: h3=":${PORT}"; ma=86400'`] : []),
  ];
  const config = join(folder, 'h2o.conf');
  writeFileSync(config, `${lines.join('\n')}\n`);
  return [path, '-c', config];
}

/**
 * Returns the QUIC settings: TCP's controller and window are set by the link. Plans with a
 * controller that h2o lacks are refused.
 */
function h2oWindow({ congestion, initialWindow }: Arm): string[] {
  const controllers: Known['quicControllers'] = H2O_CONTROLLERS;
  const controller = controllers[congestion];
  return [
    ...(controller === undefined ? [] : [`  cc: ${controller}`]),
    ...(initialWindow === undefined ? [] : [`  initcwnd: ${initialWindow}`]),
  ];
}
