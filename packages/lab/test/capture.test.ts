import assert from 'node:assert/strict';
import { readdirSync, readFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import {
  brotliCompressSync,
  brotliDecompressSync,
  constants,
  gunzipSync,
  gzipSync,
} from 'node:zlib';
import { captureArguments } from '../src/capture/capture.js';
import { codingOf, encode } from '../src/capture/coding.js';
import type { Capture, Exchange } from '../src/capture/exchange.js';
import { readHar } from '../src/capture/read-har.js';
import { captureRequest, type CaptureOptions } from '../src/capture/options.js';
import { readRecording, type RecordingFacts } from '../src/capture/recording.js';
import { isSecret } from '../src/capture/secrets.js';
import { writeCapture } from '../src/capture/write-capture.js';
import { LabError } from '../src/io/errors.js';
import { generator, randomBytes } from '../src/campaign/seed.js';

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-capture-test-'));
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  return folder;
}

const text = Buffer.from(
  Array.from(
    { length: 4000 },
    (_, at) => `.rule-${(at * 7919) % 4000} { margin: ${at % 17}px; }\n`,
  ).join(''),
);

function exchange(url: string, more: Partial<Exchange> = {}): Exchange {
  return {
    method: 'GET',
    url,
    status: 200,
    headers: [['content-type', 'text/plain']],
    body: Buffer.from(url),
    wireBytes: undefined,
    protocol: 'h2',
    type: 'Document',
    startSeconds: 0,
    endSeconds: 1,
    ...more,
  };
}

const captured = (...exchanges: Exchange[]): Capture => ({
  url: 'https://a.test/',
  capturedAt: '2026-11-22T12:00:00.000Z',
  browser: 'Chromium 1.2.3.4',
  requests: exchanges.length,
  exchanges,
  notes: [],
});

const refusal = (says: RegExp, code: number) => (thrown: unknown) =>
  thrown instanceof LabError && thrown.exitCode === code && says.test(thrown.line());

test('content is compressed to about its transferred size', () => {
  const quality = (level: number): Buffer =>
    brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: level } });
  for (const level of [1, 5, 9, 11]) {
    const wire = quality(level).length;
    const { coding, bytes } = encode(text, 'br', wire + 9);
    assert.equal(coding, 'br');
    assert.ok(
      Math.abs(bytes.length / wire - 1) < 0.05,
      `quality ${level}: ${bytes.length}, not ${wire}`,
    );
    assert.deepEqual(brotliDecompressSync(bytes), text);
  }
  const fast = gzipSync(text, { level: 1 });
  assert.equal(encode(text, 'gzip', fast.length).bytes.length, fast.length);
  assert.deepEqual(gunzipSync(encode(text, 'gzip', undefined).bytes), text);
});

test('zstd stays zstd where Node.js supports it and becomes Brotli elsewhere', () => {
  const zlib = createRequire(import.meta.url)('node:zlib') as Record<string, unknown>;
  const has = typeof zlib.zstdCompressSync === 'function';
  const { coding, bytes } = encode(text, 'zstd', text.length / 4);
  assert.equal(coding, has ? 'zstd' : 'br');
  assert.ok(bytes.length < text.length / 2);
});

test('only content codings that a replay can write are used', () => {
  assert.equal(codingOf('BR'), 'br');
  assert.equal(codingOf('x-gzip'), 'gzip');
  for (const other of [undefined, 'identity', 'gzip, br', 'dcb', ''])
    assert.equal(codingOf(other), undefined);
});

test('recording stores content with and without its coding, as its entry says', (t) => {
  const folder = join(folderFor(t), 'recording');
  const wireBytes = gzipSync(text, { level: 4 }).length;
  const headers = [
    ['Content-Encoding', 'gzip'],
    ['vary', 'accept-encoding'],
  ] as const;
  writeCapture(
    captured(exchange('https://a.test/style.css', { headers, body: text, wireBytes })),
    folder,
    false,
  );
  const { recording, bytes, origins, requests } = readRecording(folder);
  const [entry] = recording.entries;
  assert.ok(entry?.body && entry.encoded);
  assert.deepEqual(readFileSync(join(folder, entry.body.file)), text);
  assert.deepEqual(gunzipSync(readFileSync(join(folder, entry.encoded.file))), text);
  assert.deepEqual([entry.encoded.size, entry.wireBytes], [wireBytes, wireBytes]);
  assert.deepEqual(entry.headers, [['vary', 'accept-encoding']]);
  assert.deepEqual([bytes, origins, requests], [wireBytes, ['a.test:443'], 1]);
  assert.deepEqual(recording.notes, []);
});

test('cookies and other secrets are written only on request', (t) => {
  const folder = folderFor(t);
  const headers = [
    ['set-cookie', 'id=1'],
    ['x-csrf-token', 'secret'],
    ['etag', '"1"'],
  ] as const;
  const capture = captured(exchange('https://a.test/', { headers }));
  const names = (keep: boolean): string[] => {
    const recording = writeCapture(capture, join(folder, String(keep)), keep);
    return recording.entries[0]?.headers.map(([name]) => name) ?? [];
  };
  assert.deepEqual(names(false), ['etag']);
  assert.deepEqual(names(true), ['set-cookie', 'x-csrf-token', 'etag']);
  assert.doesNotMatch(readFileSync(join(folder, 'false/recording.json'), 'utf8'), /id=1|secret/);
  for (const name of ['Cookie', 'Authorization', 'X-API-Key', 'x-session-id'])
    assert.ok(isSecret(name), name);
  for (const name of ['accept', 'etag', 'content-type', 'x-cookie-policy'])
    assert.ok(!isSecret(name), name);
});

test('repeated request is stored once, with the response that does not redirect back to it', (t) => {
  const folder = folderFor(t);
  const again = exchange('https://a.test/', {
    status: 302,
    headers: [['location', '/']],
    body: Buffer.alloc(0),
  });
  const recording = writeCapture(
    captured(
      again,
      exchange('https://a.test/'),
      exchange('https://a.test/poll', { body: Buffer.from('1') }),
      exchange('https://a.test/poll', { body: Buffer.from('2') }),
      exchange('https://a.test/same'),
      exchange('https://a.test/same'),
      exchange('https://a.test/form', { method: 'POST' }),
      exchange('https://a.test/lost', { body: undefined }),
    ),
    join(folder, 'recording'),
    false,
  );
  assert.deepEqual(
    recording.entries.map(
      ({ method, url, status }) => `${method} ${new URL(url).pathname} ${status}`,
    ),
    ['GET / 200', 'GET /poll 200', 'GET /same 200', 'POST /form 200'],
  );
  assert.deepEqual(
    (recording.notes ?? []).map(({ url, reason }) => `${new URL(url).pathname}: ${reason}`),
    [
      '/poll: requested again with another response; a replay sends the first',
      '/lost: its body could not be read; a replay answers 404',
      '/form: a replay sends the recorded response, whatever the request body',
    ],
  );
});

test('file names are derived from URLs and stay within the folder', (t) => {
  const folder = join(folderFor(t), 'recording');
  const urls = [
    'https://a.test/..%2f..%2fetc',
    'https://a.test/.hidden',
    'https://a.test/a/%00?x',
    `https://a.test/${'n'.repeat(300)}`,
  ];
  writeCapture(captured(...urls.map((url) => exchange(url))), folder, false);
  const files = readdirSync(join(folder, 'bodies')).sort();
  assert.equal(files.length, 4);
  for (const file of files) assert.match(file, /^\d{4}-[A-Za-z0-9][A-Za-z0-9._-]{0,59}$/);
});

const harEntry = (url: string, content: object, more: object = {}): object => ({
  startedDateTime: '2026-11-22T12:00:00.500Z',
  time: 100,
  request: { method: 'GET', url, headers: [{ name: 'Cookie', value: 'id=1' }] },
  response: {
    status: 200,
    httpVersion: 'h3',
    headers: [
      { name: ':status', value: '200' },
      { name: 'Content-Type', value: 'text/html' },
    ],
    bodySize: 10,
    content,
    ...more,
  },
});

function harFile(t: TestContext, ...entries: object[]): string {
  const path = join(folderFor(t), 'page.har');
  writeFileSync(
    path,
    JSON.stringify({
      log: { version: '1.2', browser: { name: 'Firefox', version: '1' }, entries },
    }),
  );
  return path;
}

test('HAR file with content becomes a recording', (t) => {
  const path = harFile(
    t,
    harEntry('https://a.test/#top', { text: '<p>hello', size: 8 }),
    harEntry('https://b.test/x.png', { text: 'AAEC', encoding: 'base64' }, { bodySize: null }),
    harEntry('https://a.test/blocked', {}, { status: 0 }),
    harEntry('https://a.test/lost', { size: 5 }),
    harEntry('data:text/plain,hello', { text: 'hello' }),
  );
  const folder = join(folderFor(t), 'recording');
  const recording = writeCapture(readHar(path), folder, false);
  assert.deepEqual(
    [recording.url, recording.browser, recording.requests],
    ['https://a.test/', 'Firefox 1', 4],
  );
  assert.deepEqual(
    recording.entries.map(({ url, headers, protocol }) => [url, headers, protocol]),
    ['https://a.test/', 'https://b.test/x.png'].map((url) => [
      url,
      [['content-type', 'text/html']],
      'h3',
    ]),
  );
  const [first, second] = recording.entries.map(({ body }) =>
    readFileSync(join(folder, body?.file ?? '')),
  );
  assert.deepEqual([first?.toString(), second], ['<p>hello', Buffer.from([0, 1, 2])]);
  assert.deepEqual(
    (recording.notes ?? []).map(({ url }) => url),
    // The first note is about the load event, which the file lacks.
    ['https://a.test/', 'https://a.test/blocked', 'https://a.test/lost'],
  );
});

/**
 * Returns what the lab reads from a HAR file: its document, and the requests that count for a load
 * of it.
 */
function judgedIn(
  t: TestContext,
  har: object,
  allowed?: RegExp,
): { facts: RecordingFacts; judged: string[] } {
  const folder = folderFor(t);
  const path = join(folder, 'tool.har');
  writeFileSync(path, JSON.stringify(har));
  writeCapture(readHar(path), join(folder, 'recording'), false);
  const facts = readRecording(join(folder, 'recording'));
  const notes = (facts.recording.notes ?? []).map(({ reason }) => reason).join('\n');
  assert.match(notes, allowed ?? /^$/);
  return {
    facts,
    judged: facts.expected.requests.map(({ url, when }) => `${new URL(url).pathname} ${when}`),
  };
}

const START = Date.parse('2026-11-22T12:00:00.000Z');
const toolEntry = (
  milliseconds: number,
  path: string,
  more: Partial<Record<string, object>> = {},
): object => ({
  startedDateTime: new Date(START + milliseconds).toISOString(),
  time: 20,
  cache: {},
  timings: { send: 0, wait: 10, receive: 10 },
  request: {
    method: 'GET',
    url: `https://shop.test${path}`,
    httpVersion: 'HTTP/2',
    headers: [],
    ...more.request,
  },
  response: {
    ...{
      status: 200,
      statusText: '',
      httpVersion: 'HTTP/2',
      redirectURL: '',
      headersSize: 50,
      bodySize: 4,
    },
    headers: [{ name: 'Content-Type', value: 'text/plain' }],
    content: { size: 4, mimeType: 'text/plain', text: 'text' },
    ...more.response,
  },
});
const html = (text: string): object => ({
  headers: [{ name: 'content-type', value: 'text/html; charset=utf-8' }],
  content: { mimeType: 'text/html', size: text.length, text },
});
const HTML = `<!doctype html><title>\n The  shop</title><link href='/brand.svg' rel="shortcut icon"><script src=late.js></script>`;

test("HAR file with queued responses yields no think times from queueing, and keeps the server's", (t) => {
  const timed = (
    at: number,
    path: string,
    wait: number,
    receive: number,
    connect = -1,
  ): object => ({
    ...toolEntry(at, path),
    timings: { blocked: 0, dns: -1, connect, ssl: connect, send: 0, wait, receive },
  });
  const first = {
    ...toolEntry(0, '/', { response: html(HTML) }),
    timings: { connect: 100, ssl: 50, send: 0, wait: 50, receive: 5 },
  };
  const behind = [0, 1, 2, 3].map((place) => timed(200, `/${place}.css`, 50 + 100 * place, 100));
  const { facts } = judgedIn(
    t,
    {
      log: { version: '1.2', entries: [first, ...behind, timed(1000, '/slow', 350, 5)] },
    },
    /load event/,
  );
  const found = facts.recording.entries.map(({ thinkSeconds, thinkFrom }) => [
    thinkSeconds,
    thinkFrom,
  ]);
  assert.deepEqual(found, [
    [0, 'wait'],
    [0, 'wait'],
    [0, 'estimate'],
    [0, 'estimate'],
    [0, 'estimate'],
    [0.3, 'wait'],
  ]);
});

test("HAR file's document and its redirects do not affect the think times of other responses", (t) => {
  const timed = (
    at: number,
    path: string,
    wait: number,
    receive: number,
    response: object,
  ): object => ({
    ...toolEntry(at, path, { response }),
    timings: { blocked: 0, dns: -1, connect: -1, ssl: -1, send: 0, wait, receive },
  });
  const redirect = {
    status: 302,
    headers: [{ name: 'location', value: '/home' }],
    content: { size: 0, mimeType: '' },
  };
  const style = { headers: [{ name: 'content-type', value: 'text/css' }] };
  const entries = [
    timed(0, '/', 450, 5, redirect),
    timed(500, '/home', 450, 10, html(HTML)),
    timed(970, '/long.css', 50, 1000, style),
    timed(980, '/data', 520, 10, {}),
  ];
  const { facts } = judgedIn(t, { log: { version: '1.2', entries } }, /load event/);
  assert.deepEqual(
    facts.recording.entries.map(({ thinkSeconds }) => thinkSeconds),
    [0.4, 0.4, 0, undefined],
  );
});

test("Firefox HAR file: requests after the load event and the page's icon are not judged", (t) => {
  const { facts, judged } = judgedIn(t, {
    log: {
      ...{
        version: '1.2',
        creator: { name: 'Firefox', version: '140.0' },
        browser: { name: 'Firefox', version: '140' },
      },
      pages: [
        {
          id: 'page_1',
          title: 'https://shop.test/',
          startedDateTime: '2026-11-22T13:00:00.000+01:00',
          pageTimings: { onContentLoad: 300, onLoad: 500 },
        },
      ],
      entries: [
        { pageref: 'page_1', ...toolEntry(0, '/', { response: html(HTML) }) },
        { pageref: 'page_1', ...toolEntry(900, '/poll?1') },
        { pageref: 'page_1', ...toolEntry(200, '/late.js') },
        { pageref: 'page_1', ...toolEntry(210, '/brand.svg') },
      ],
    },
  });
  assert.deepEqual(judged, ['/ before-load', '/late.js before-load', '/poll after-load']);
  assert.deepEqual(facts.recording.document, {
    url: 'https://shop.test/',
    status: 200,
    title: 'The shop',
  });
  assert.deepEqual([facts.requests, facts.uncounted], [2, 2]);
});

test('WebPageTest HAR file: the first visit is used, from the redirect on', (t) => {
  const page = (id: string): object => ({
    ...{ id, title: id, startedDateTime: '2026-11-22T12:00:00.000Z' },
    pageTimings: { onContentLoad: -1, onLoad: 700, _startRender: 400 },
  });
  const moved = {
    status: 301,
    headers: [{ name: 'Location', value: '/shop' }],
    content: { size: 0 },
  };
  const { facts, judged } = judgedIn(
    t,
    {
      log: {
        ...{
          version: '1.2',
          creator: { name: 'WebPagetest', version: '25.07' },
          pages: [page('page_1_0_1'), page('page_1_1_1')],
        },
        entries: [
          { pageref: 'page_1_0_1', _index: 0, ...toolEntry(0, '/', { response: moved }) },
          {
            pageref: 'page_1_0_1',
            _index: 1,
            ...toolEntry(100, '/shop', { response: html(HTML) }),
          },
          { pageref: 'page_1_0_1', _index: 2, ...toolEntry(650, '/late.js') },
          {
            pageref: 'page_1_0_1',
            _index: 3,
            ...toolEntry(720, '/beacon', { request: { method: 'POST' } }),
          },
          { pageref: 'page_1_0_1', _index: 4, ...toolEntry(730, '/favicon.ico') },
          {
            pageref: 'page_1_1_1',
            _index: 0,
            ...toolEntry(9000, '/shop', { response: html(HTML) }),
          },
        ],
      },
    },
    /^1 requests of other pages in the HAR file are skipped\na replay sends the recorded response, [^\n]*$/,
  );
  assert.deepEqual(judged, [
    '/ before-load',
    '/shop before-load',
    '/late.js before-load',
    '/beacon after-load',
  ]);
  assert.deepEqual(facts.recording.document?.url, 'https://shop.test/shop');
  assert.equal(facts.url, 'https://shop.test/');
});

test('Charles HAR file: tunnels are excluded, and without a load event no late request is expected', (t) => {
  const { facts, judged } = judgedIn(
    t,
    {
      log: {
        ...{ version: '1.2', creator: { name: 'Charles Proxy', version: '5.0' } },
        entries: [
          toolEntry(0, '/', { request: { method: 'CONNECT' } }),
          toolEntry(5, '/ocsp', { request: { method: 'POST' } }),
          toolEntry(10, '/', { response: html(HTML) }),
          toolEntry(300, '/late.js'),
          toolEntry(2000, '/poll?1'),
        ],
      },
    },
    /^the HAR file has no time of the load event; [^\n]*\na replay sends the recorded response, [^\n]*$/,
  );
  assert.deepEqual(judged, ['/ocsp unknown', '/ before-load', '/late.js unknown', '/poll unknown']);
  assert.deepEqual([facts.url, facts.leastBytes], ['https://shop.test/', undefined]);
});

test('recording counts the requests that began before its load event', (t) => {
  const folder = join(folderFor(t), 'recording');
  const made = captured(
    exchange('https://a.test/'),
    exchange('https://a.test/late', { startSeconds: 2, endSeconds: 3 }),
  );
  writeCapture({ ...made, loadSeconds: 1 }, folder, false);
  const { requests, bytes, leastBytes, uncounted } = readRecording(folder);
  assert.deepEqual(
    [requests, bytes, leastBytes, uncounted],
    [1, 'https://a.test/'.length, undefined, 1],
  );
});

test('icon that the page also shows counts as an image of the page', (t) => {
  const folder = join(folderFor(t), 'recording');
  const icon = (more: Partial<Exchange>): Exchange => exchange('https://a.test/icon.png', more);
  writeCapture(
    captured(exchange('https://a.test/'), icon({ icon: true }), icon({})),
    folder,
    false,
  );
  assert.deepEqual(readRecording(folder).expected.requests.length, 2);
  const only = join(folderFor(t), 'recording');
  writeCapture(captured(exchange('https://a.test/'), icon({ icon: true })), only, false);
  assert.deepEqual(readRecording(only).expected.requests.length, 1);
});

test('HAR file that cannot become a recording is rejected with what to do', (t) => {
  const folder = folderFor(t);
  const written = (content: string): string => {
    const path = join(folder, 'bad.har');
    writeFileSync(path, content);
    return path;
  };
  assert.throws(
    () => readHar(join(folder, 'none.har')),
    refusal(/none\.har does not exist; check the path/, 66),
  );
  assert.throws(() => readHar(written('{')), refusal(/is not JSON/, 65));
  assert.throws(
    () => readHar(written('{"log":{}}')),
    refusal(/is not a valid HAR file: log\.entries/, 65),
  );
  assert.throws(
    () => readHar(harFile(t, harEntry('https://a.test/', {}))),
    refusal(/export it with content/, 65),
  );
  assert.throws(
    () => readHar(harFile(t, harEntry('data:,x', { text: 'x' }))),
    refusal(/no http or https request/, 65),
  );
});

test('invalid recording is rejected with what to do', (t) => {
  const folder = folderFor(t);
  assert.throws(
    () => readRecording(folder),
    refusal(/has no recording\.json; make a recording with/, 66),
  );
  writeFileSync(join(folder, 'recording.json'), '{"schema":2}');
  assert.throws(() => readRecording(folder), refusal(/is not a valid recording at schema/, 65));
  writeFileSync(join(folder, 'recording.json'), 'x');
  assert.throws(() => readRecording(folder), refusal(/is not JSON/, 65));
});

test('command line of capture is validated', () => {
  const url = 'https://a.test/';
  const bad = (says: RegExp, words: string[], values: Record<string, unknown>): void => {
    assert.throws(
      () => captureRequest(words, { out: 'o', ...values }),
      refusal(says, 2),
      String(says),
    );
  };
  bad(/needs --out DIR/, [url], { out: undefined });
  bad(/usage: /, [], {});
  bad(/usage: /, [url], { har: 'x.har' });
  bad(/--wait-ms is only for capturing a URL, not for --har/, [], { har: 'x.har', 'wait-ms': '5' });
  bad(/a\.test is not an http or https URL/, ['a.test'], {});
  bad(/contains a user name or password/, ['https://me:word@a.test/'], {});
  bad(/--wait-ms must be a whole number from 0 to/, [url], { 'wait-ms': 'x' });
  bad(/--allow-status must be a whole number from 300 to 599, not 200/, [url], {
    'allow-status': '200',
  });
  bad(/--timeout must be a whole number from 1 to/, [url], { timeout: '0' });
  bad(/--resolve a is not HOST=ADDRESS/, [url], { resolve: ['a'] });
  bad(/--resolve a=b, MAP/, [url], { resolve: ['a=b, MAP * c'] });
  bad(/--spki xyz is not the SHA-256/, [url], { spki: 'xyz' });
  const request = captureRequest([`${url}#part`], {
    out: 'o',
    resolve: ['a.test=127.0.0.1:8443', '*=[::1]'],
  });
  assert.ok(request.kind === 'page');
  assert.equal(request.options.url, url);
  const rules = captureArguments(request.options).find((argument) =>
    argument.startsWith('--host-resolver-rules='),
  );
  assert.equal(rules, '--host-resolver-rules=MAP a.test 127.0.0.1:8443, MAP * [::1]');
});

test('browser of a capture keeps its security checks unless configured otherwise', () => {
  const { options } = captureRequest(['https://a.test/'], { out: 'o' }) as {
    options: CaptureOptions;
  };
  assert.ok(
    !captureArguments(options).some(
      (argument) => argument.includes('certificate') || argument.includes('MAP'),
    ),
  );
  const spki = randomBytes(32, generator(1)).toString('base64');
  const loose = captureArguments({ ...options, insecureCertificate: true, spki });
  assert.ok(loose.includes('--ignore-certificate-errors'));
  assert.ok(loose.includes(`--ignore-certificate-errors-spki-list=${spki}`));
});
