import assert from 'node:assert/strict';
import test from 'node:test';
import { completenessOf, type Expected, type RecordedRequest } from '../src/load/expected.js';
import { outcomeOf } from '../src/load/outcome.js';
import { LONG_LOOK_MS, SHORT_LOOK_MS } from '../src/samples/look.js';
import { Wait } from '../src/load/settle.js';
import { withPaints } from '../src/load/page-timeline.js';
import { timesOf } from '../src/run/run-load.js';
import type { DevToolsRequest, NavigationEntry } from '../src/samples/sample.js';
import { recorded, type Mutable } from './recorded.js';

const EXPECTED: Expected = { kind: 'count', requests: 6 };
const requests = (): Mutable<DevToolsRequest>[] =>
  structuredClone(recorded('h3').browser.requests) as Mutable<DevToolsRequest>[];

test('load whose requests were all answered is completed', () => {
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, requests(), EXPECTED), { outcome: 'completed' });
});

const incomplete: [
  what: string,
  change: (requests: Mutable<DevToolsRequest>[]) => unknown,
  says: RegExp,
][] = [
  ['a request fewer than the page makes', (all) => all.pop(), /made 5 requests, not 6/],
  [
    'a request more than the page makes',
    (all) => all.push({ ...(all[1] as DevToolsRequest) }),
    /made 7 requests, not 6/,
  ],
  [
    'a failed request',
    (all) =>
      Object.assign(all[2] as object, { finished: false, error: 'net::ERR_QUIC_PROTOCOL_ERROR' }),
    /5 of 6 requests answered; https:.*: net::ERR_QUIC_PROTOCOL_ERROR/,
  ],
  ['a missing file', (all) => Object.assign(all[2] as object, { status: 404 }), /status 404/],
  [
    'a response without an end',
    (all) => Object.assign(all[2] as object, { finished: false }),
    /not finished/,
  ],
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

/** Returns a recording of the same requests with changes. */
const recordingOf = (...more: readonly Partial<RecordedRequest>[]): Expected => ({
  kind: 'recording',
  requests: requests().map(({ url }, at) => ({
    method: 'GET',
    url,
    status: 200,
    when: 'before-load',
    ...more[at],
  })),
  documentStatus: 200,
  loadSeconds: 1,
});
const LOAD_EVENT_MS = 1000;
/** Returns the recorded requests, all begun before the load event. */
const begun = (): Mutable<DevToolsRequest>[] =>
  requests().map((each) => Object.assign(each, { startedMonotonicMs: LOAD_EVENT_MS - 100 }));
const loaded = (
  all: readonly DevToolsRequest[],
  expected: Expected,
): ReturnType<typeof outcomeOf> => outcomeOf({ kind: 'loaded' }, all, expected, LOAD_EVENT_MS);

test('failure that a recorded page had is a valid response, another failure is not', () => {
  const changed = begun();
  Object.assign(changed[2] as object, { status: 404 });
  const expecting = (status: number): object => loaded(changed, recordingOf({}, {}, { status }));
  assert.deepEqual(expecting(404), { outcome: 'completed' });
  assert.match(JSON.stringify(expecting(410)), /incomplete.*status 404/);
});

/**
 * Returns an unfinished request as pages make them after their load event, and browsers at any
 * time.
 */
const aside = (url: string, more: Partial<DevToolsRequest> = {}): DevToolsRequest => ({
  requestId: url,
  method: 'GET',
  url: `https://bench.test${url}`,
  type: 'Fetch',
  priority: 'High',
  startedMonotonicMs: LOAD_EVENT_MS + 50,
  finished: false,
  ...more,
});

test('request for the icon never counts, nor does one after the load event', () => {
  const icon = aside('/favicon.ico', { icon: true, startedMonotonicMs: LOAD_EVENT_MS - 50 });
  const failed = aside('/beacon', { error: 'net::ERR_FAILED' });
  for (const expected of [EXPECTED, recordingOf()]) {
    assert.deepEqual(
      loaded([...begun(), icon, aside('/poll?1'), aside('/poll?2'), failed], expected),
      {
        outcome: 'completed',
      },
    );
  }
  const early = aside('/poll', { startedMonotonicMs: LOAD_EVENT_MS - 50 });
  assert.match(loaded([...begun(), early], EXPECTED).reason ?? '', /poll: not finished/);
  // It is early in this load, but the recording has it late, or not at all.
  assert.deepEqual(loaded([...begun(), early], recordingOf()), { outcome: 'completed' });
  const base = recordingOf() as Extract<Expected, { kind: 'recording' }>;
  const late: RecordedRequest = { method: 'GET', url: early.url, status: 200, when: 'after-load' };
  assert.deepEqual(loaded([...begun(), early], { ...base, requests: [...base.requests, late] }), {
    outcome: 'completed',
  });
});

test('recorded request that is missing or fails makes a load incomplete, whenever it begins', () => {
  const [, second] = begun();
  const without = begun().filter(({ url }) => url !== second?.url);
  assert.equal(
    loaded(without, recordingOf()).reason,
    `5 of 6 requests answered; ${second?.url ?? ''} was not requested`,
  );
  const later = (more: Partial<DevToolsRequest>): DevToolsRequest[] => [
    ...without,
    { ...(second as DevToolsRequest), startedMonotonicMs: LOAD_EVENT_MS + 400, ...more },
  ];
  // A script that waits for half a second may come before the load event of one load, and after
  // that of a faster one.
  assert.deepEqual(loaded(later({}), recordingOf()), { outcome: 'completed' });
  assert.match(loaded(later({ finished: false }), recordingOf()).reason ?? '', /not finished/);
});

test('recorded request is found by its path, also over cleartext', () => {
  const changed = begun().map((each) => ({ ...each, url: each.url.replace('https:', 'http:') }));
  const last = changed.at(-1) as Mutable<DevToolsRequest>;
  last.url += '?time=12345';
  assert.deepEqual(loaded(changed, recordingOf()), { outcome: 'completed' });
  // A random path differs each time; the replay answers 404.
  last.url = 'http://bench.test/pixel/987654';
  assert.match(loaded(changed, recordingOf()).reason ?? '', /was not requested/);
  last.status = 404;
  assert.deepEqual(loaded(changed, recordingOf()), { outcome: 'completed' });
});

test('load of a recording without a load event is judged by its own', () => {
  const unknown = recordingOf(
    {},
    ...Array.from({ length: 5 }, () => ({ when: 'unknown' as const })),
  );
  assert.deepEqual(loaded(begun().slice(0, 3), unknown), { outcome: 'completed' });
  const failing = (startedMonotonicMs: number): DevToolsRequest[] =>
    begun().map((each, at) => (at === 3 ? { ...each, finished: false, startedMonotonicMs } : each));
  assert.match(loaded(failing(LOAD_EVENT_MS - 1), unknown).reason ?? '', /not finished/);
  assert.deepEqual(loaded(failing(LOAD_EVENT_MS + 1), unknown), { outcome: 'completed' });
  assert.match(loaded([], unknown).reason ?? '', /was not requested/);
});

test('only the requests that count are awaited', () => {
  const isWaiting = (all: readonly DevToolsRequest[], expected: Expected): boolean[] => {
    const { pending, missing } = completenessOf(all, expected, LOAD_EVENT_MS);
    return [pending, missing];
  };
  const open = begun();
  Object.assign(open[4] as object, { finished: false });
  for (const expected of [EXPECTED, recordingOf()]) {
    assert.deepEqual(isWaiting([...begun(), aside('/poll')], expected), [false, false]);
    assert.deepEqual(isWaiting(open, expected), [true, false]);
    assert.deepEqual(isWaiting(begun().slice(0, 5), expected), [false, true]);
  }
  assert.deepEqual(isWaiting([...begun(), aside('/events')], { kind: 'document' }), [false, false]);
});

test('missing request is awaited as long as the recorded load took, from the last arrival', () => {
  /**
   * Returns when the wait is over, checked every 10 ms from a load event on, with a request in
   * flight until `pendingUntil`.
   */
  const over = (
    nowMs: number,
    recordedMs: number,
    { pendingUntil = 0, untilMs = 60_000, missing = true } = {},
  ): number => {
    const wait = new Wait({ startedMs: 100, recordedMs, untilMs }, nowMs);
    let now = nowMs;
    while (!wait.isOver({ pending: now < pendingUntil, missing }, now)) now += 10;
    return now;
  };
  // A slow arm has its load event after 9 s, and a timer of up to 4 s may start then.
  assert.equal(over(9_100, 4_000), 13_100);
  // A fast arm's timer may start as late as the recording's.
  assert.equal(over(1_100, 4_000), 8_100);
  // Messages of the developer tools take a moment, even without a recording.
  assert.equal(over(1_100, 0), 2_100);
  assert.equal(over(1_100, 400), 2_100);
  // A late response may trigger the missing request.
  assert.equal(over(3_100, 1_000, { pendingUntil: 7_500 }), 8_490);
  assert.equal(over(3_100, 1_000, { pendingUntil: 7_500, missing: false }), 7_500);
  // No load takes longer than the plan allows.
  assert.equal(over(9_100, 4_000, { untilMs: 12_000 }), 12_000);
  assert.equal(over(9_100, 4_000, { pendingUntil: 90_000, untilMs: 12_000 }), 12_000);
});

test('error page does not count as the document, and has no times', () => {
  const changed = begun();
  Object.assign(changed[0] as object, { status: 500 });
  for (const expected of [EXPECTED, recordingOf(), { kind: 'document' } as const]) {
    const seen = loaded(changed, expected);
    assert.equal(seen.documentFault, 'the document has status 500');
    assert.deepEqual(timesOf({ ...recorded('h3').browser, ...seen }, EXPECTED), {});
  }
  const failed = outcomeOf(
    { kind: 'failed', error: 'net::ERR_QUIC_PROTOCOL_ERROR' },
    [],
    recordingOf(),
  );
  assert.deepEqual(timesOf({ ...recorded('h3').browser, ...failed }, EXPECTED), {});
  // An error page may be intended for measuring.
  const wanted = { ...recordingOf({ status: 500 }), documentStatus: 500 } as Expected;
  assert.deepEqual(loaded(changed, wanted), { outcome: 'completed' });
});

test('document is the final one after redirects', () => {
  const [first, ...others] = begun();
  const document = { ...(first as DevToolsRequest), mainDocument: true };
  const redirect = { ...document, requestId: '1-redirect-1', status: 302 };
  assert.match(
    loaded([redirect, { ...document, status: 502 }, ...others], { kind: 'document' }).reason ?? '',
    /has status 502/,
  );
  assert.deepEqual(loaded([redirect, document, ...others], { kind: 'document' }), {
    outcome: 'completed',
  });
});

test('last byte is that of the load, not of later requests', () => {
  const { browser } = recorded('h3');
  const { navigation, resources } = browser;
  assert.ok(navigation && resources[0]);
  const poll = { ...resources[0], startTime: navigation.loadEventStart + 1, responseEnd: 99_000 };
  const lastByte = (
    more: Partial<typeof poll>,
    expected: Expected = EXPECTED,
  ): number | undefined =>
    timesOf({ ...browser, resources: [...resources, { ...poll, ...more }] }, expected).lastByte;
  const own = timesOf(browser, EXPECTED).lastByte;
  assert.equal(lastByte({}), own);
  // Responses that began before the load event and are awaited always count; others count if they
  // came soon.
  const before = navigation.loadEventStart - 1;
  assert.equal(lastByte({ startTime: before }), 99);
  assert.equal(lastByte({ startTime: before }, { kind: 'document' }), own);
  assert.equal(
    lastByte({ startTime: before, name: 'https://else.test/', responseEnd: 9_000 }),
    own,
  );
  const within = (lookMs: number | undefined, responseEnd: number): number | undefined =>
    timesOf(
      {
        ...browser,
        ...(lookMs !== undefined && { lookMs }),
        resources: [...resources, { ...poll, startTime: before, responseEnd }],
      },
      { kind: 'document' },
    ).lastByte;
  for (const lookMs of [undefined, SHORT_LOOK_MS, LONG_LOOK_MS]) {
    const until: number = navigation.loadEventStart + (lookMs ?? SHORT_LOOK_MS);
    assert.deepEqual([within(lookMs, until), within(lookMs, until + 1)], [until / 1000, own]);
  }
});

test("paint counts until the end of its load's observation time, however long the load is observed", () => {
  const navigation = recorded('h3').browser.navigation as NavigationEntry;
  for (const lookMs of [SHORT_LOOK_MS, LONG_LOOK_MS]) {
    const until = navigation.loadEventStart + lookMs;
    const seen = { navigation, resources: [], firstPaintMs: 40, largestPaintsMs: [40, 90, until] };
    const short = withPaints(seen, lookMs);
    assert.deepEqual(
      [short.firstContentfulPaintMs, short.largestContentfulPaintMs, short.lookMs],
      [40, until, lookMs],
    );
    assert.equal(short.latePaintsMs, undefined);
    const longer = { ...seen, largestPaintsMs: [...seen.largestPaintsMs, until + 1, until + 900] };
    assert.deepEqual(withPaints(longer, lookMs), {
      ...short,
      latePaintsMs: [until + 1, until + 900],
    });
    const blank = withPaints(
      { ...seen, firstPaintMs: until + 1, largestPaintsMs: [until + 1] },
      lookMs,
    );
    assert.equal(blank.firstContentfulPaintMs ?? blank.largestContentfulPaintMs, undefined);
    // Without a load event each arm has the plan's time.
    const never = {
      ...seen,
      navigation: { ...navigation, loadEventStart: 0 },
      largestPaintsMs: [9_000],
    };
    assert.equal(withPaints(never, lookMs).largestContentfulPaintMs, 9_000);
  }
});

test('load without a load event in time is a timeout', () => {
  const { outcome, reason } = outcomeOf(
    { kind: 'timeout', seconds: 9 },
    requests().slice(0, 4),
    EXPECTED,
  );
  assert.equal(outcome, 'timeout');
  assert.equal(reason, 'no load event in 9 s; 4 of 6 requests answered');
});

test('document that the browser aborted is a failed load', () => {
  const { outcome, reason } = outcomeOf(
    { kind: 'failed', error: 'net::ERR_TIMED_OUT at https://x/\nstack' },
    [],
    EXPECTED,
  );
  assert.equal(outcome, 'failed');
  assert.equal(reason, 'net::ERR_TIMED_OUT at https://x/');
});

test('times are those of the navigation entry, in seconds', () => {
  const { browser } = recorded('h3');
  const times = timesOf(browser, EXPECTED);
  assert.ok(browser.navigation);
  assert.equal(times.load, browser.navigation.loadEventEnd / 1000);
  assert.equal(times.firstByte, browser.navigation.responseStart / 1000);
  const ends = browser.resources.map(({ responseEnd }) => responseEnd);
  assert.equal(times.lastByte, Math.max(...ends, browser.navigation.responseEnd) / 1000);
});

test('load that did not complete has no load time', () => {
  const times = timesOf({ ...recorded('h3').browser, outcome: 'incomplete' }, EXPECTED);
  assert.equal(times.load, undefined);
  assert.equal(times.lastByte, undefined);
  assert.ok(times.firstByte !== undefined);
});

test('external page is completed with its document', () => {
  const unknown = { kind: 'document' } as const;
  const changed = requests();
  Object.assign(changed[3] as object, { finished: false, error: 'net::ERR_FAILED' });
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, changed, unknown), { outcome: 'completed' });
  Object.assign(changed[0] as object, { status: 503 });
  assert.deepEqual(outcomeOf({ kind: 'loaded' }, changed, unknown), {
    outcome: 'incomplete',
    reason: 'the document has status 503',
    documentFault: 'the document has status 503',
  });
});
