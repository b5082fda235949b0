import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { readRecording } from '../../src/capture/recording.js';
import { makeCertificate } from '../../src/run/certificate.js';
import { trueTypeFont } from '../../src/page/font.js';
import { generator } from '../../src/campaign/seed.js';
import { packageFolder } from '../places.js';
import { CLI, faultsOf, samplesOf, type Run } from './lab.js';

/**
 * Pages that were not made for the lab: they have to be captured, replayed and complete over both
 * protocols, and whatever a replay lacks has to be reported. The servers use Node.js and are
 * independent of the lab.
 */

const folder = mkdtempSync(join(tmpdir(), 'lab-unprepared-'));
// The browser's user needs access.
chmodSync(folder, 0o755);
after(() => {
  rmSync(folder, { recursive: true });
});

const HOSTS = ['shop.test', 'www.shop.test', 'cdn.example'];
const certificate = makeCertificate(folder, '127.0.0.1', HOSTS);

interface Answer {
  readonly status?: number;
  readonly type?: string;
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  /** Think time of the server. */
  readonly milliseconds?: number;
}

const NOT_THERE: Answer = { status: 404, body: 'there is no such page' };

/** Answers requests by host and path, unknown ones with 404. Returns the port. */
async function site(t: TestContext, pages: Readonly<Record<string, Answer>>): Promise<number> {
  const { certPath, keyPath } = certificate;
  const server = createSecureServer(
    { cert: readFileSync(certPath), key: readFileSync(keyPath), allowHTTP1: true },
    (request: Http2ServerRequest, response: Http2ServerResponse) => {
      const host = request.headers[':authority'] ?? request.headers.host ?? '';
      const known = pages[host + (request.url.split('?')[0] ?? '')];
      const {
        status = 200,
        type = 'text/plain',
        body = '',
        headers,
        milliseconds = 0,
      } = known ?? NOT_THERE;
      request.resume();
      setTimeout(() => {
        if (response.stream.destroyed) return;
        response.writeHead(status, {
          'content-type': type,
          'access-control-allow-origin': '*',
          ...headers,
        });
        response.end(body);
      }, milliseconds);
    },
  );
  server.on('error', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sessions = new Set<{ destroy(): void }>();
  server.on('session', (session) => sessions.add(session));
  t.after(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Asynchronous, because the servers run in this process. */
async function lab(...args: readonly string[]): Promise<Run> {
  const env = { ...process.env, TMPDIR: folder };
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [CLI, ...args], { env });
    return { status: 0, stdout, stderr };
  } catch (thrown) {
    const { code, stdout, stderr } = thrown as { code: number; stdout: string; stderr: string };
    return { status: code, stdout, stderr };
  }
}

function capture(port: number, url: string, out: string, ...more: readonly string[]): Promise<Run> {
  // The first matching host rule counts.
  const found = ['--resolve', `*=127.0.0.1:${port}`, '--spki', certificate.spki];
  return lab('capture', url, '--out', out, '--wait-ms', '3000', ...more, ...found);
}

const SHOP = `<!doctype html><title>The shop</title><link rel="icon" href="/brand.png">
<link rel="stylesheet" href="https://cdn.example/shop.css">
<script src="/shop.js" async></script><h1>Shop</h1><img src="/gone.png"><img src="/slow.svg"><p class="font">late</p>`;

/**
 * A late script, a beacon at the load event and another one at the end, polling, and a worker of
 * each kind.
 */
const SCRIPT = `
document.cookie = 'basket=1';
setTimeout(() => { const late = document.createElement('script'); late.src = '/late.js?at=' + Date.now(); document.head.append(late); }, 100);
fetch('/account').catch(() => undefined);
fetch('https://nowhere.example/').catch(() => undefined);
navigator.serviceWorker.register('/service.js').catch(() => undefined);
new Worker('/worker.js');
new SharedWorker('/shared.js');
navigator.sendBeacon('/beacon', 'early');
addEventListener('load', () => {
  navigator.sendBeacon('/seen', 'loaded');
  let polled = 0;
  setInterval(() => { if (polled < 40) fetch('/poll?' + (polled++)); }, 50);
});`;

const PICTURE =
  '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>';
const script = (body: string): Answer => ({ type: 'text/javascript', body });
const PAGES: Readonly<Record<string, Answer>> = {
  'shop.test/': {
    status: 301,
    headers: { location: 'https://www.shop.test/start', 'set-cookie': 'id=secret-cookie' },
  },
  'www.shop.test/start': {
    type: 'text/html',
    body: SHOP,
    headers: { 'set-cookie': 'session=secret-cookie' },
  },
  'www.shop.test/shop.js': script(SCRIPT),
  'www.shop.test/late.js': script(
    "const picture = new Image(); picture.src = '/picture.svg'; document.body.append(picture);",
  ),
  'www.shop.test/picture.svg': { type: 'image/svg+xml', body: PICTURE },
  // The load event waits for it, so it comes after the late script. A replay has no think time
  // here, so the load event may come before.
  'www.shop.test/slow.svg': { type: 'image/svg+xml', body: PICTURE, milliseconds: 3000 },
  'www.shop.test/account': { type: 'application/json', body: '{}' },
  'www.shop.test/service.js': script(
    'onfetch = (event) => event.respondWith(fetch(event.request));',
  ),
  'www.shop.test/worker.js': script("fetch('/from-worker')"),
  'www.shop.test/from-worker': { body: 'work' },
  'www.shop.test/shared.js': script("fetch('/from-shared')"),
  'www.shop.test/from-shared': { body: 'shared' },
  'www.shop.test/beacon': { status: 204 },
  'www.shop.test/seen': { status: 204 },
  'www.shop.test/poll': { body: 'nothing new' },
  'cdn.example/shop.css': {
    type: 'text/css',
    body: '@font-face { font-family: "shop"; src: url("/shop.ttf"); } .font { font-family: "shop"; }',
  },
  'cdn.example/shop.ttf': { type: 'font/ttf', body: trueTypeFont(3000, 'shop', generator(1)) },
};

/**
 * Returns the same load as a proxy records it: without a browser's knowledge of load event, icon
 * and redirects.
 */
function harOf(recordingFolder: string): object {
  const { recording } = readRecording(recordingFolder);
  const start = Date.parse('2026-11-22T12:00:00.000Z');
  const entries = recording.entries.map(
    ({ method, url, status, headers, body, startSeconds = 0 }) => ({
      startedDateTime: new Date(start + startSeconds * 1000).toISOString(),
      time: 10,
      request: {
        method,
        url,
        httpVersion: 'HTTP/2.0',
        headers: [],
        cookies: [],
        queryString: [],
        headersSize: -1,
        bodySize: 0,
      },
      response: {
        ...{
          status,
          statusText: '',
          httpVersion: 'HTTP/2.0',
          cookies: [],
          redirectURL: null,
          headersSize: -1,
          bodySize: body?.size ?? 0,
        },
        headers: headers.map(([name, value]) => ({ name, value })),
        content: {
          size: body?.size ?? 0,
          encoding: 'base64',
          text:
            body === undefined
              ? ''
              : readFileSync(join(recordingFolder, body.file)).toString('base64'),
        },
      },
      cache: {},
      timings: { send: 0, wait: 10, receive: 0 },
    }),
  );
  const icons = entries.filter(({ request }) => !/brand|favicon/.test(request.url));
  return {
    log: { version: '1.2', creator: { name: 'Charles Proxy', version: '5.0' }, entries: icons },
  };
}

test('unprepared shop is captured, and its recording and HAR file load completely over both protocols', async (t) => {
  const port = await site(t, PAGES);
  const shop = join(folder, 'shop');
  const captured = await capture(
    port,
    'https://shop.test/',
    shop,
    '--resolve',
    'nowhere.example=127.0.0.1:1',
  );
  assert.equal(captured.status, 0, captured.stderr);
  assert.match(
    captured.stdout,
    /^document: https:\/\/www\.shop\.test\/start, status 200, "The shop"$/m,
  );
  assert.match(
    captured.stdout,
    /^\d+ of the responses are for the page's icon or were requested after the load event: /m,
  );
  for (const told of [
    /^warning: https:\/\/shop\.test\/ redirects to https:\/\/www\.shop\.test\/start, which is recorded; check that it is not a login/m,
    /^warning: GET https:\/\/www\.shop\.test\/service\.js: a service worker, which a replay lacks$/m,
    /^warning: GET https:\/\/www\.shop\.test\/shared\.js: a shared worker, which a replay lacks$/m,
    /^warning: POST https:\/\/www\.shop\.test\/beacon: a replay sends the recorded response/m,
  ]) {
    assert.match(captured.stderr, told);
  }
  const { recording, expected } = readRecording(shop);
  const judged = expected.requests
    .filter(({ when }) => when === 'before-load')
    .map(({ url }) => url.split('?')[0]);
  const all = recording.entries.map(({ url }) => new URL(url).pathname);
  for (const path of ['/poll', '/seen', '/brand.png'])
    assert.ok(all.includes(path), `${path} of ${all.join()}`);
  const www = (path: string): string => `https://www.shop.test${path}`;
  const needed = [
    '/start',
    '/shop.js',
    '/late.js',
    '/picture.svg',
    '/account',
    '/worker.js',
    '/gone.png',
  ].map(www);
  for (const url of [
    ...needed,
    'https://shop.test/',
    'https://cdn.example/shop.css',
    'https://cdn.example/shop.ttf',
  ]) {
    assert.ok(judged.includes(url), `${url} of ${judged.join()}`);
  }
  for (const path of ['/poll', '/seen', '/brand.png']) assert.ok(!judged.includes(www(path)), path);
  assert.doesNotMatch(readFileSync(join(shop, 'recording.json'), 'utf8'), /secret-cookie/);

  const file = join(folder, 'proxy.har');
  const proxy = join(folder, 'proxy');
  writeFileSync(file, JSON.stringify(harOf(shop)));
  const read = await lab('capture', '--har', file, '--out', proxy);
  assert.equal(read.status, 0, read.stderr);
  assert.match(
    read.stdout,
    /^document: https:\/\/www\.shop\.test\/start, status 200, "The shop"$/m,
  );
  assert.match(read.stderr, /the HAR file has no time of the load event/);

  const plan = join(folder, 'shop.toml');
  const out = join(folder, 'out');
  const arms = ['h2', 'h3']
    .map((name) => `[[arms]]\nname = "${name}"\nprotocol = "${name}"\n`)
    .join('');
  const pages = [shop, proxy].map((page) => `[[pages]]\nfolder = "${page}"\n`).join('');
  const mild = join(packageFolder, 'test/fixtures/mild.toml');
  writeFileSync(
    plan,
    `name = "shop"\nseed = 1\nblocks = 1\nprofiles = ["${mild}"]\n${pages}${arms}`,
  );
  const run = await lab('run', plan, '--out', out);
  assert.ok(run.status === 0 || run.status === 3, run.stderr);
  const samples = samplesOf(out);
  assert.equal(samples.length, 8, run.stderr);
  for (const sample of samples) {
    assert.deepEqual(
      [sample.outcome, faultsOf(sample)],
      ['completed', []],
      `${sample.page} ${sample.arm}: ${sample.reason ?? ''}`,
    );
    assert.ok(
      (sample.times.lastByte ?? Infinity) <= (sample.times.load ?? 0) + 1,
      JSON.stringify(sample.times),
    );
  }
  assert.match(
    run.stdout,
    /Page shop: a load is complete with the \d+ requests that were recorded before the load event; \d+ others/,
  );
});

test('error page and login page are not measured without a warning', async (t) => {
  const port = await site(t, {
    'shop.test/': { status: 502, type: 'text/html', body: '<title>Bad gateway</title>502' },
    'shop.test/empty': { status: 503 },
    'shop.test/private': { status: 302, headers: { location: '/login?to=private' } },
    'shop.test/login': { type: 'text/html', body: '<title>Sign in</title><form></form>' },
  });
  const out = join(folder, 'error');
  const refused = await capture(port, 'https://shop.test/', out);
  assert.equal(refused.status, 69);
  assert.equal(
    refused.stderr,
    'error: https://shop.test/ has status 502; use --allow-status 502 to record it anyway\n',
  );
  assert.ok(!existsSync(out));
  const empty = await capture(port, 'https://shop.test/empty', out);
  assert.equal(empty.status, 69);
  assert.match(empty.stderr, /^error: https:\/\/shop\.test\/empty has status 503; [^\n]*\n$/);
  assert.ok(!existsSync(out));
  const wanted = await capture(port, 'https://shop.test/', out, '--allow-status', '502');
  assert.equal(wanted.status, 0, wanted.stderr);
  assert.match(wanted.stdout, /^document: https:\/\/shop\.test\/, status 502, "Bad gateway"$/m);
  const login = await capture(port, 'https://shop.test/private', join(folder, 'login'));
  assert.equal(login.status, 0, login.stderr);
  assert.match(
    login.stdout,
    /^document: https:\/\/shop\.test\/login\?to=private, status 200, "Sign in"$/m,
  );
  assert.match(
    login.stderr,
    /^warning: https:\/\/shop\.test\/private redirects to https:\/\/shop\.test\/login\?to=private, which/m,
  );
  assert.ok(!readdirSync(folder).some((name) => name.startsWith('pronghorn-lab-')));
});
