import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { gunzipSync, gzipSync } from 'node:zlib';
import Ajv from 'ajv';
import type { Exchange } from '../../src/capture/exchange.js';
import { readRecording, type RecordingEntry } from '../../src/capture/recording.js';
import { writeCapture } from '../../src/capture/write-capture.js';
import { makeCertificate } from '../../src/run/certificate.js';
import { findPronghorn } from '../../src/run/programs.js';
import { packageFolder } from '../places.js';
import { CLI, lab as runLab, type Run } from './lab.js';
import { startServer, type Server } from './server.js';

/** Captures pages with the real browser from `pronghorn replay`: needs `pronghorn` and Chromium. */

const folder = mkdtempSync(join(tmpdir(), 'lab-capture-e2e-'));
// The browser's user needs access.
chmodSync(folder, 0o755);
after(() => {
  rmSync(folder, { recursive: true });
});

const env = { ...process.env, TMPDIR: folder };
const lab = (...args: readonly string[]): Run => runLab(args, env);

async function replay(
  t: TestContext,
  recording: string,
  ...more: readonly string[]
): Promise<Server> {
  return startServer(t, 'replay', recording, folder, ...more);
}

function capture(
  url: string,
  out: string,
  { address, spki }: Server,
  ...more: readonly string[]
): string {
  const run = lab(
    'capture',
    url,
    '--out',
    out,
    '--resolve',
    `*=${address}`,
    '--spki',
    spki,
    '--wait-ms',
    '500',
    ...more,
  );
  assert.equal(run.status, 0, run.stderr);
  // A busy machine behaves like a slow network.
  return run.stderr.replace(/^warning: only \d+ of \d+ think times .*\n/m, '');
}

/** Returns what a load consists of: method, URL, status and body of each request. */
function summary(recording: string): string[] {
  const describe = ({ method, url, status, body }: RecordingEntry): string =>
    `${method} ${url} ${status} ${body?.sha256 ?? 'empty'}`;
  return readRecording(recording).recording.entries.map(describe).sort();
}

interface Har {
  readonly log: {
    readonly entries: readonly {
      readonly timings: { readonly wait: number };
      readonly request: { readonly url: string; readonly method: string };
      readonly response: { readonly status: number; readonly content: { readonly size: number } };
    }[];
  };
}

/** Returns the HAR file of a capture after validating it with the published schema of HAR 1.2. */
function validHar(recording: string): Har {
  const require = createRequire(import.meta.url);
  const schemas = require('har-schema') as Record<string, object>;
  const ajv = new Ajv({ allErrors: true });
  ajv.addMetaSchema(require('ajv/lib/refs/json-schema-draft-06.json') as object);
  ajv.addSchema(Object.values(schemas));
  const har = JSON.parse(readFileSync(join(recording, 'capture.har'), 'utf8')) as Har;
  assert.ok(ajv.validate('har.json#', har), ajv.errorsText());
  return har;
}

test('page on three hosts is captured from its replay, and again from the replay of that capture', async (t) => {
  const names = ['page', 'once', 'twice'].map((name) => join(folder, name));
  const [page, once, twice] = names as [string, string, string];
  const made = lab('page', join(packageFolder, 'pages/three-hosts.toml'), '--out', page);
  assert.equal(made.status, 0, made.stderr);
  const slow = think(page, 0.5);
  assert.equal(capture('https://bench.test/', once, await replay(t, page, '--think-times')), '');
  // The wait minus the shortest of the other waits of the same host, which is almost 0 here.
  const { thinkSeconds = 0 } = entryOf(once, slow);
  assert.ok(thinkSeconds > 0.25 && thinkSeconds < 30, String(thinkSeconds));
  assert.equal(capture('https://bench.test/', twice, await replay(t, once)), '');
  assert.equal(summary(page).length, 23);
  assert.deepEqual(summary(once), summary(page));
  assert.deepEqual(summary(twice), summary(page));
  const { recording, bytes, requests, origins } = readRecording(twice);
  assert.deepEqual([bytes, requests, origins.length], [406_000, 23, 3]);
  const hosts = { protocols: recording.entries.map(({ protocol }) => protocol) };
  assert.deepEqual(new Set(hosts.protocols), new Set(['h2']));
  const { entries } = validHar(twice).log;
  assert.deepEqual(
    entries
      .map(({ request, response }) => `${request.url} ${response.status} ${response.content.size}`)
      .sort(),
    recording.entries.map(({ url, status, body }) => `${url} ${status} ${body?.size ?? 0}`).sort(),
  );
});

/** Captures over an emulated link of 2 Mbit/s and 60 ms from a server with recorded think times. */
function captureOverLink(page: string, out: string): RecordingEntry[] {
  const link = join(folder, 'slow.toml');
  writeFileSync(
    link,
    'name = "slow"\n[up]\nrate_mbit_per_second = 2\ndelay_ms = 30\nqueue_ms = 500\n[down]\nrate_mbit_per_second = 2\ndelay_ms = 30\nqueue_ms = 500\n',
  );
  const { certPath, keyPath, spki } = makeCertificate(folder, '10.77.0.2', [
    'bench.test',
    '*.bench.test',
  ]);
  const program = findPronghorn(process.env.PRONGHORN).path;
  const far = [
    program,
    'replay',
    page,
    '--think-times',
    '--listen',
    '10.77.0.2:443',
    '--cert',
    certPath,
    '--key',
    keyPath,
  ];
  const near = [
    process.execPath,
    CLI,
    'capture',
    'https://bench.test/',
    '--out',
    out,
    '--wait-ms',
    '200',
  ];
  const more = ['--resolve', '*=10.77.0.2:443', '--spki', spki];
  const run = spawnSync(
    program,
    ['link', link, '--far', far.join(' '), '--far-ready', '443', '--', ...near, ...more],
    {
      encoding: 'utf8',
      env,
    },
  );
  assert.equal(run.status, 0, run.stderr);
  return readRecording(out).recording.entries;
}

test('capture over a slow link adds no think time from the link, and keeps that of a server', () => {
  const page = join(folder, 'pictures');
  const spec = join(folder, 'pictures.toml');
  writeFileSync(
    spec,
    'name = "pictures"\nseed = 3\nhtml_bytes = 12_000\n[[resources]]\nkind = "image"\norigin = "images"\ncount = 8\ntotal_bytes = 240_000\n',
  );
  const made = lab('page', spec, '--out', page);
  assert.equal(made.status, 0, made.stderr);
  const most = (entries: readonly RecordingEntry[]): number =>
    Math.max(...entries.map(({ thinkSeconds = 0 }) => thinkSeconds));
  const atOnce = captureOverLink(page, join(folder, 'at-once'));
  assert.equal(atOnce.length, 9);
  // A picture's wait for the others is not part of it.
  const har = JSON.parse(readFileSync(join(folder, 'at-once', 'capture.har'), 'utf8')) as Har;
  const waits = har.log.entries.map(({ timings }) => timings.wait);
  assert.ok(Math.max(...waits) - Math.min(...waits) > 120, waits.join());
  assert.ok(most(atOnce) < 0.1, JSON.stringify(atOnce.map(({ thinkSeconds }) => thinkSeconds)));
  // Longer than all the others take.
  const slow = think(page, 3);
  const entries = captureOverLink(page, join(folder, 'thinking'));
  const { thinkSeconds = 0, thinkFrom } = entries.find(({ url }) => url === slow) as RecordingEntry;
  assert.ok(thinkSeconds > 2.9 && thinkFrom === 'wait', `${thinkSeconds} ${thinkFrom}`);
  assert.ok(most(entries.filter(({ url }) => url !== slow)) < 0.1);
});

const entryOf = (recording: string, wanted: string): RecordingEntry =>
  readRecording(recording).recording.entries.find(({ url }) => url === wanted) as RecordingEntry;

/** Gives one of the pictures of a recording a think time, and returns which. */
function think(recording: string, thinkSeconds: number): string {
  const path = join(recording, 'recording.json');
  const content = JSON.parse(readFileSync(path, 'utf8')) as {
    entries: { url: string; thinkSeconds?: number }[];
  };
  const slow = content.entries.find(({ url }) => url.endsWith('.png'));
  assert.ok(slow);
  slow.thinkSeconds = thinkSeconds;
  writeFileSync(path, JSON.stringify(content));
  return slow.url;
}

const style = Buffer.from(
  Array.from({ length: 900 }, (_, at) => `.rule-${at} { margin: ${at}px; }\n`).join(''),
);

function exchange(
  url: string,
  content: string | Buffer,
  type: string,
  more: Partial<Exchange> = {},
): Exchange {
  return {
    method: 'GET',
    url,
    status: 200,
    headers: [['content-type', type]],
    body: Buffer.from(content),
    wireBytes: undefined,
    protocol: undefined,
    type: undefined,
    startSeconds: 0,
    endSeconds: undefined,
    ...more,
  };
}

/**
 * A site with what a generated page lacks: a redirect, a cookie, a form, a frame of another site, a
 * worker.
 */
const SITE: readonly Exchange[] = [
  exchange('https://shop.test/old', '', 'text/plain', {
    status: 301,
    headers: [
      ['location', 'https://shop.test/'],
      ['set-cookie', 'visit=cookie-value-1; Path=/'],
    ],
  }),
  exchange(
    'https://shop.test/',
    `<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="style.css"><title>shop</title>
     <script src="main.js"></script><iframe src="https://ads.example/frame.html"></iframe>
     <img src="missing.png"><img src="ftp://shop.test/never">`,
    'text/html',
    {
      headers: [
        ['content-type', 'text/html'],
        ['set-cookie', 'session=cookie-value-2'],
      ],
    },
  ),
  exchange('https://shop.test/style.css', style, 'text/css', {
    headers: [
      ['content-type', 'text/css'],
      ['content-encoding', 'gzip'],
    ],
    wireBytes: gzipSync(style, { level: 9 }).length,
  }),
  exchange(
    'https://shop.test/main.js',
    `fetch('/order', { method: 'POST', body: 'card=posted-secret' });
     fetch('/stock?item=1&time=' + Date.now()).then(() => new Worker('worker.js'));
     fetch('https://api.example/data', { headers: { 'x-page': 'shop' } });
     fetch('https://gone.example/').catch(() => undefined);`,
    'text/javascript',
  ),
  exchange('https://shop.test/order', 'thanks', 'text/plain', { method: 'POST', status: 201 }),
  exchange('https://shop.test/stock?item=1&time=0', '7', 'text/plain'),
  exchange('https://shop.test/worker.js', `fetch('/from-worker');`, 'text/javascript'),
  exchange('https://shop.test/from-worker', 'work', 'text/plain'),
  exchange('https://shop.test/missing.png', 'no such picture', 'text/plain', { status: 404 }),
  // A browser sends a preflight request before it sends a custom field to another host.
  exchange('https://api.example/data', '', 'text/plain', {
    method: 'OPTIONS',
    status: 204,
    headers: [
      ['access-control-allow-origin', 'https://shop.test'],
      ['access-control-allow-headers', 'x-page'],
    ],
  }),
  exchange('https://api.example/data', '{}', 'application/json', {
    headers: [
      ['content-type', 'application/json'],
      ['access-control-allow-origin', 'https://shop.test'],
    ],
  }),
  exchange('https://ads.example/frame.html', '<script src="frame.js"></script>', 'text/html'),
  exchange('https://ads.example/frame.js', 'document.title = "frame"', 'text/javascript'),
];

function makeSite(name: string): string {
  const site = join(folder, name);
  const capture = {
    url: 'https://shop.test/old',
    capturedAt: undefined,
    browser: undefined,
    exchanges: SITE,
    notes: [],
  };
  writeCapture({ ...capture, requests: SITE.length }, site, true);
  return site;
}

/** Returns the contents of all files in a folder. */
function contents(of: string): string {
  const files = readdirSync(of, { recursive: true, withFileTypes: true }).filter((each) =>
    each.isFile(),
  );
  return files.map((file) => readFileSync(join(file.parentPath, file.name), 'latin1')).join('\n');
}

test('redirects, forms, frames, workers and codings are captured, and secrets are removed', async (t) => {
  const out = join(folder, 'shop');
  const server = await replay(t, makeSite('site'));
  const gone = ['--resolve', 'gone.example=127.0.0.1:1'];
  // The first matching rule counts.
  const run = lab(
    'capture',
    'https://shop.test/old',
    '--out',
    out,
    ...gone,
    '--resolve',
    `*=${server.address}`,
    '--spki',
    server.spki,
  );
  assert.equal(run.status, 0, run.stderr);
  const { recording } = readRecording(out);
  const seen = recording.entries.map(
    ({ method, url, status }) => `${method} ${url.replace(/time=\d+/, 'time=T')} ${status}`,
  );
  assert.deepEqual(
    seen.sort(),
    SITE.map(
      ({ method, url, status }) => `${method} ${url.replace(/time=\d+/, 'time=T')} ${status}`,
    ).sort(),
  );
  assert.equal(recording.requests, SITE.length + 1);
  const sheet = recording.entries.find(({ url }) => url.endsWith('.css'));
  assert.equal(sheet?.encoded?.coding, 'gzip');
  assert.deepEqual(gunzipSync(readFileSync(join(out, sheet.encoded.file))), style);
  assert.ok(
    Math.abs(sheet.encoded.size / gzipSync(style, { level: 9 }).length - 1) < 0.05,
    String(sheet.encoded.size),
  );
  const notes = (recording.notes ?? []).map(
    ({ method, url, reason }) => `${method} ${url}: ${reason}`,
  );
  assert.equal(notes.length, 2);
  assert.match(
    notes.join('\n'),
    /GET https:\/\/gone\.example\/: net::ERR_\w+; a replay answers 404/,
  );
  assert.match(
    notes.join('\n'),
    /POST https:\/\/shop\.test\/order: a replay sends the recorded response/,
  );
  assert.match(run.stderr, /^warning: GET https:\/\/gone\.example\//m);
  validHar(out);
  assert.doesNotMatch(contents(out), /cookie-value|posted-secret"/);
});

test('cookies are kept on request', async (t) => {
  const out = join(folder, 'kept');
  capture('https://shop.test/old', out, await replay(t, makeSite('site-kept')), '--keep-cookies');
  const { recording } = readRecording(out);
  const cookies = recording.entries.flatMap(({ headers }) =>
    headers.filter(([name]) => name === 'set-cookie'),
  );
  assert.deepEqual(cookies.map(([, value]) => value).sort(), [
    'session=cookie-value-2',
    'visit=cookie-value-1; Path=/',
  ]);
  validHar(out);
  assert.match(readFileSync(join(out, 'capture.har'), 'utf8'), /cookie-value-2/);
});

test('page without a load event in time is recorded as far as it loaded', async (t) => {
  const out = join(folder, 'slow');
  const server = createServer((request, response) => {
    if (request.url === '/never.png') return;
    response.setHeader('content-type', 'text/html');
    response.end('<!doctype html><link rel="icon" href="data:,"><img src="never.png">hello');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  // Asynchronous, because the server runs in this process.
  const { stderr } = await promisify(execFile)(
    process.execPath,
    [CLI, 'capture', url, '--out', out, '--timeout', '20', '--wait-ms', '0'],
    { env },
  );
  assert.match(
    stderr,
    /^warning: http:\/\/127\.0\.0\.1:\d+\/ had no load event within 20 s; the responses until then are recorded$/m,
  );
  assert.match(
    stderr,
    /^warning: GET \S+\/never\.png: did not end before the capture did; a replay answers 404$/m,
  );
  const { recording, requests } = readRecording(out);
  assert.deepEqual(
    [recording.entries.map((entry) => entry.url), recording.requests, requests],
    [[url], 2, 1],
  );
});

test('interrupted capture writes nothing and leaves no process running', async (t) => {
  const out = join(folder, 'interrupted');
  const { address, spki } = await replay(t, makeSite('site-interrupted'));
  const args = [
    'capture',
    'https://shop.test/',
    '--out',
    out,
    '--resolve',
    `*=${address}`,
    '--spki',
    spki,
  ];
  const child = spawn(process.execPath, [CLI, ...args, '--wait-ms', '600000'], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (part: Buffer) => (stderr += part.toString()));
  const ended = new Promise((resolve) => child.once('close', resolve));
  const scratch = (): string | undefined =>
    readdirSync(folder).find((name) => name.startsWith('pronghorn-lab-capture-'));
  // The browser that loads the page is running when it has written to its profile.
  const profileSize = (): number => {
    const within = join(folder, scratch() ?? '');
    const browser = readdirSync(within).find((name) => name.startsWith('browser-'));
    const profile = join(within, browser ?? '', 'user-data');
    return browser === undefined || !existsSync(profile) ? 0 : readdirSync(profile).length;
  };
  while (scratch() === undefined || profileSize() < 3) await sleep(20);
  child.kill('SIGINT');
  await ended;
  assert.equal(child.exitCode, 130, stderr);
  assert.match(stderr, /^interrupted: nothing was written$/m);
  assert.equal(scratch(), undefined);
  assert.ok(!existsSync(out));
});

test('page that cannot be loaded is reported in one line and leaves no files', async (t) => {
  const out = join(folder, 'nothing');
  const refused = lab(
    'capture',
    'https://shop.test/',
    '--out',
    out,
    '--resolve',
    'shop.test=127.0.0.1:1',
  );
  assert.equal(refused.status, 69);
  assert.match(
    refused.stderr,
    /^error: cannot load https:\/\/shop\.test\/: net::ERR_\w+; check the URL[^\n]*\n$/,
  );
  const { address } = await replay(t, makeSite('site-untrusted'));
  const untrusted = lab(
    'capture',
    'https://shop.test/',
    '--out',
    out,
    '--resolve',
    `shop.test=${address}`,
  );
  assert.equal(untrusted.status, 69);
  assert.match(untrusted.stderr, /^error: [^\n]* net::ERR_CERT_\w+; [^\n]*\n$/);
  assert.ok(
    !readdirSync(folder).some(
      (name) => name.startsWith('nothing') || name.startsWith('pronghorn-lab-capture-'),
    ),
  );
});
