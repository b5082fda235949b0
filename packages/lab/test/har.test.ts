import assert from 'node:assert/strict';
import test from 'node:test';
import { z } from 'zod';
import { harOf, type Har } from '../src/samples/har.js';
import type { BrowserSide } from '../src/samples/sample.js';
import { recorded, type Mutable } from './recorded.js';
import { recordedTimeline } from './traces.js';

const FACTS = {
  version: '0.1.0',
  chromium: '156.0.1.2',
  startedAt: '2026-11-22T12:00:00.000Z',
  title: 'a load',
};

// HAR 1.2 as specified, without optional parts that are not written.
const pair = z.strictObject({ name: z.string(), value: z.string() });
const phase = z.number().min(-1);
const entry = z.looseObject({
  pageref: z.string(),
  startedDateTime: z.iso.datetime(),
  time: z.number().min(0),
  request: z.strictObject({
    method: z.string().regex(/^[A-Z]+$/),
    url: z.url(),
    httpVersion: z.string().min(1),
    cookies: z.array(pair),
    headers: z.array(pair),
    queryString: z.array(pair),
    headersSize: z.int().min(-1),
    bodySize: z.int().min(-1),
  }),
  response: z.strictObject({
    status: z.int().min(0),
    statusText: z.string(),
    httpVersion: z.string().min(1),
    cookies: z.array(pair),
    headers: z.array(pair),
    content: z.strictObject({ size: z.int().min(0), mimeType: z.string() }),
    redirectURL: z.string(),
    headersSize: z.int().min(-1),
    bodySize: z.int().min(-1),
  }),
  cache: z.strictObject({}),
  timings: z.strictObject({
    blocked: phase,
    dns: phase,
    connect: phase,
    ssl: phase,
    send: z.number().min(0),
    wait: z.number().min(0),
    receive: z.number().min(0),
  }),
  serverIPAddress: z.string().optional(),
  connection: z.string().optional(),
});
const named = z.strictObject({ name: z.string(), version: z.string() });
const schema = z.strictObject({
  log: z.strictObject({
    version: z.literal('1.2'),
    creator: named,
    browser: named.optional(),
    pages: z.array(
      z.strictObject({
        startedDateTime: z.iso.datetime(),
        id: z.string(),
        title: z.string(),
        pageTimings: z.strictObject({ onContentLoad: phase, onLoad: phase }),
      }),
    ),
    entries: z.array(entry),
  }),
});

function har(browser: BrowserSide): Har {
  const made = harOf(browser, FACTS);
  const checked = schema.safeParse(JSON.parse(JSON.stringify(made)));
  assert.ok(checked.success, checked.error?.message);
  for (const { timings, time, ...rest } of made.log.entries) {
    const { ssl, ...others } = timings;
    const sum = Object.values(others).reduce((total, each) => total + Math.max(0, each), 0);
    assert.ok(Math.abs(sum - time) < 0.01, rest.request.url);
    assert.ok(ssl <= timings.connect, rest.request.url);
    for (const key of Object.keys(rest).filter((each) => !each.startsWith('_')))
      assert.ok(key in entry.shape, key);
  }
  return made;
}

test('recorded loads are HAR 1.2 with the protocol that carried each request', async () => {
  for (const [name, version] of [
    ['loss-h2', 'h2'],
    ['loss-h3', 'h3'],
    ['auto-quic', 'h3'],
  ] as const) {
    const { browser } = await recordedTimeline(name);
    const { log } = har(browser);
    assert.equal(log.entries.length, browser.requests.length);
    assert.ok(log.entries.every(({ response }) => response.httpVersion === version));
  }
});

test('entries have the start and duration that the page observed', async () => {
  const { browser } = await recordedTimeline('slow-h2');
  const { log } = har(browser);
  const start = Date.parse(log.pages[0]?.startedDateTime ?? '');
  for (const { name, startTime, responseEnd } of browser.resources) {
    const found = log.entries.find(({ request }) => request.url === name);
    assert.ok(found, name);
    const from = Date.parse(found.startedDateTime) - start;
    assert.ok(from >= startTime - 1, `${from} ${startTime}`);
    assert.ok(
      Math.abs(from + found.time - responseEnd) < 1.5,
      `${from + found.time} ${responseEnd}`,
    );
  }
});

test('first request of a connection has the handshake, later ones have none', async () => {
  const { browser } = await recordedTimeline('loss-h3');
  const [document, ...others] = har(browser).log.entries;
  assert.ok((document?.timings.connect ?? 0) > 70);
  assert.ok(others.every(({ timings }) => timings.connect === -1 && timings.ssl === -1));
});

test('HTTP/1.1 is spelled as in HTTP, and queries are listed', () => {
  const browser = structuredClone(recorded('h2').browser) as Mutable<BrowserSide>;
  const [first] = browser.requests;
  assert.ok(first);
  first.protocol = 'http/1.1';
  first.url = 'https://bench.test/?a=1&b=%20';
  const [made] = har(browser).log.entries;
  assert.equal(made?.response.httpVersion, 'HTTP/1.1');
  assert.deepEqual(made.request.queryString, [
    { name: 'a', value: '1' },
    { name: 'b', value: ' ' },
  ]);
});

test('request that was never answered is an entry with its error', () => {
  const browser = structuredClone(recorded('h2').browser) as Mutable<BrowserSide>;
  const first = browser.requests[0]?.timing?.requestTime ?? 0;
  browser.requests.push({
    requestId: 'x',
    url: 'https://bench.test/never',
    type: 'Image',
    priority: 'Low',
    finished: false,
    error: 'net::ERR_TIMED_OUT',
    startedMonotonicMs: first * 1000 + 500,
    endedMonotonicMs: first * 1000 + 2_000,
  });
  const made = har(browser).log.entries.at(-1);
  assert.equal(made?.response.status, 0);
  assert.equal(made._error, 'net::ERR_TIMED_OUT');
  assert.ok(Math.abs(made.time - 1_500) < 1);
});
