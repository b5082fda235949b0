import assert from 'node:assert/strict';
import test from 'node:test';
import { outcomeOf } from '../src/load/outcome.js';
import { timesOf } from '../src/run-load.js';
import type { DevToolsRequest } from '../src/sample.js';
import { recorded, type Mutable } from './recorded.js';

const EXPECTED = { expectedRequests: 6, expectedFailures: {} };
const requests = (): Mutable<DevToolsRequest>[] =>
  structuredClone(recorded('h3').browser.requests) as Mutable<DevToolsRequest>[];

test('load whose requests were all answered is completed', () => {
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, requests(), EXPECTED), { outcome: 'completed' });
});

const incomplete: [what: string, change: (requests: Mutable<DevToolsRequest>[]) => unknown, says: RegExp][] = [
  ['a request fewer than the page makes', (all) => all.pop(), /made 5 requests, not 6/],
  [
    'a request more than the page makes',
    (all) => all.push({ ...(all[1] as DevToolsRequest) }),
    /made 7 requests, not 6/,
  ],
  [
    'a failed request',
    (all) => Object.assign(all[2] as object, { finished: false, error: 'net::ERR_QUIC_PROTOCOL_ERROR' }),
    /5 of 6 requests answered; https:.*: net::ERR_QUIC_PROTOCOL_ERROR/,
  ],
  ['a missing file', (all) => Object.assign(all[2] as object, { status: 404 }), /status 404/],
  ['a response without an end', (all) => Object.assign(all[2] as object, { finished: false }), /no end/],
];

for (const [what, change, says] of incomplete) {
  test(`load with ${what} is incomplete`, () => {
    const changed = requests();
    change(changed);
    const { outcome, reason } = outcomeOf({ kind: 'loaded' }, changed, EXPECTED);
    assert.equal(outcome, 'incomplete');
    assert.match(reason ?? '', says);
  });
}

test('failure that a recorded page had is an answer, another one is not', () => {
  const changed = requests();
  Object.assign(changed[2] as object, { status: 404 });
  const url = changed[2]?.url ?? '';
  const expecting = (status: number): object =>
    outcomeOf({ kind: 'loaded' }, changed, { ...EXPECTED, expectedFailures: { [url]: status } });
  assert.deepEqual(expecting(404), { outcome: 'completed' });
  assert.match(JSON.stringify(expecting(410)), /incomplete.*status 404/);
});

test('load without a load event in time is a timeout', () => {
  const { outcome, reason } = outcomeOf({ kind: 'timeout', seconds: 9 }, requests().slice(0, 4), EXPECTED);
  assert.equal(outcome, 'timeout');
  assert.equal(reason, 'no load event in 9 s; 4 of 6 requests answered');
});

test('document that the browser gave up is a failed load', () => {
  const { outcome, reason } = outcomeOf(
    { kind: 'failed', error: 'net::ERR_TIMED_OUT at https://x/\nstack' },
    [],
    EXPECTED,
  );
  assert.equal(outcome, 'failed');
  assert.equal(reason, 'net::ERR_TIMED_OUT at https://x/');
});

test('times are the navigation entry in seconds', () => {
  const { browser } = recorded('h3');
  const times = timesOf(browser);
  assert.ok(browser.navigation);
  assert.equal(times.load, browser.navigation.loadEventEnd / 1000);
  assert.equal(times.firstByte, browser.navigation.responseStart / 1000);
  const ends = browser.resources.map(({ responseEnd }) => responseEnd);
  assert.equal(times.lastByte, Math.max(...ends, browser.navigation.responseEnd) / 1000);
});

test('load that did not complete has no load time', () => {
  const times = timesOf({ ...recorded('h3').browser, outcome: 'incomplete' });
  assert.equal(times.load, undefined);
  assert.equal(times.lastByte, undefined);
  assert.ok(times.firstByte !== undefined);
});

test('page that is not ours is completed with its document', () => {
  const unknown = { expectedFailures: {} };
  const changed = requests();
  Object.assign(changed[3] as object, { finished: false, error: 'net::ERR_FAILED' });
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, changed, unknown), { outcome: 'completed' });
  Object.assign(changed[0] as object, { status: 503 });
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, changed, unknown), {
    outcome: 'incomplete',
    reason: 'the document was answered with 503',
  });
});
