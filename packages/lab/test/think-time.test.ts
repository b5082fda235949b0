import assert from 'node:assert/strict';
import test from 'node:test';
import { Recorder } from '../src/capture/recorder.js';
import {
  countThinkTimes,
  kindOf,
  thinkTimes,
  describeThinkTimes,
  thinkTimesWarning,
  type ThinkTime,
  type Wait,
} from '../src/capture/think-time.js';

const SHOP = 'shop.test:443';

/** Returns consecutive waits, far enough apart that no response delays another. */
function apart(
  ...waits: readonly (number | readonly [waitMs: number, connectMs: number, origin?: string])[]
): Wait[] {
  return waits.map((each, at) => {
    const [waitMs, connectMs, origin = SHOP] = typeof each === 'number' ? [each, undefined] : each;
    const sentMs = 10_000_000 * at;
    return { origin, kind: 'file', connectMs, sentMs, waitMs, endMs: sentMs + waitMs + 5 };
  });
}

const received = (
  sentMs: number,
  firstMs: number,
  endMs: number,
  more: Partial<Wait> = {},
): Wait => ({
  ...{ origin: SHOP, kind: 'file', connectMs: undefined, sentMs, waitMs: firstMs - sentMs, endMs },
  ...more,
});

const seconds = (found: readonly (ThinkTime | undefined)[]): (number | undefined)[] =>
  found.map((each) => each?.seconds);
const sources = (found: readonly (ThinkTime | undefined)[]): string =>
  found.map((each) => each?.from ?? 'left out').join(' ');

test('think time is the wait of a response beyond the round trip of its origin', () => {
  const found = thinkTimes(apart([350, 52], 50, 171.25));
  assert.deepEqual(seconds(found), [0.3, 0, 0.1213]);
  assert.equal(sources(found), 'wait wait wait');
  // Without a quick response, the connection's own time shows it.
  assert.deepEqual(seconds(thinkTimes(apart([350, 50], 450))), [0.3, 0.4]);
});

test('round trip is measured per origin', () => {
  assert.deepEqual(
    seconds(thinkTimes(apart([250, 50], [250, 10, 'images.test:443']))),
    [0.2, 0.24],
  );
});

test('round trip is that of a typical connection, not of one that was half open before', () => {
  assert.deepEqual(seconds(thinkTimes(apart([350, 50], [350, 51], [350, 4]))), [0.3, 0.3, 0.3]);
  // A lost SYN does not count either if a response came sooner.
  assert.deepEqual(seconds(thinkTimes(apart([350, 1050], 50))), [0.3, 0]);
});

test("round trip of an origin on another origin's connection is that connection's", () => {
  const [page, api] = apart([60, 50], [350, 0, 'api.test:443']) as [Wait, Wait];
  const shared = [page, { ...api, connectMs: undefined }].map((each) => ({
    ...each,
    connection: 7,
  }));
  assert.deepEqual(seconds(thinkTimes(shared)), [0.01, 0.3]);
});

test('unknown wait gives no think time, and neither does a single request', () => {
  const nothing: Wait = received(0, 0, 0, {
    sentMs: undefined,
    waitMs: undefined,
    endMs: undefined,
  });
  assert.deepEqual(seconds(thinkTimes([nothing, ...apart(-1, [80, 0])])), [
    undefined,
    undefined,
    0,
  ]);
  assert.deepEqual(thinkTimes([]), []);
});

test('think time is limited to what a replay supports', () => {
  assert.deepEqual(seconds(thinkTimes(apart(10, 3_600_000))), [0, 600]);
});

test('think time of queued responses on one connection does not grow along the queue', () => {
  // Requested at once, answered at once, and each 100 ms long on the wire.
  const eight = Array.from({ length: 8 }, (_, at) =>
    received(0, 50 + 100 * at, 150 + 100 * at, { connectMs: 50 }),
  );
  const found = thinkTimes(eight);
  assert.deepEqual(seconds(found), Array(8).fill(0));
  assert.equal(sources(found), `wait${' estimate'.repeat(7)}`);
  // A window that passes one burst per round trip has pauses without data.
  const bursts = Array.from({ length: 8 }, (_, at) =>
    received(0, 50 + 50 * at, 60 + 50 * at, { connectMs: 50 }),
  );
  assert.deepEqual(seconds(thinkTimes(bursts)), Array(8).fill(0));
});

test('record in flight that is not visible adds no think time', () => {
  // Two responses of two records, 70 ms each: nothing of a record is visible before its end, which
  // is later than a round trip.
  const records = [50, 260].map((firstMs) =>
    received(0, firstMs, firstMs + 140, { connectMs: 50, bytes: 3 * 16_384 }),
  );
  assert.deepEqual(seconds(thinkTimes(records)), [0, 0]);
  // If the received bytes are unknown, a pause of that length is the server's.
  const unsaid = records.map((each) => ({ ...each, bytes: undefined }));
  assert.deepEqual(seconds(thinkTimes(unsaid)), [0, 0.21]);
  // So is a longer one.
  const late = [records[0] as Wait, received(0, 330, 470, { bytes: 3 * 16_384 })];
  assert.deepEqual(seconds(thinkTimes(late)), [0, 0.28]);
});

test('response that was ready late keeps its think time, before, among and behind others', () => {
  const others = Array.from({ length: 4 }, (_, at) =>
    received(0, 50 + 20 * at, 70 + 20 * at, { connectMs: 50 }),
  );
  // The others had arrived long before this one.
  const alone = thinkTimes([...others, received(0, 350, 360)]);
  assert.deepEqual(alone.at(-1), { seconds: 0.3, from: 'wait' });
  // One more response arrived just before it, and was equally late.
  const together = thinkTimes([...others, received(0, 350, 400), received(0, 400, 410)]);
  assert.deepEqual(together.slice(-2), [
    { seconds: 0.3, from: 'wait' },
    { seconds: 0.3, from: 'estimate' },
  ]);
  // All arrived while it was being produced: a long wait between others can only be estimated from
  // others of its kind.
  const long = received(0, 50, 900, { connectMs: 50, kind: 'made' });
  assert.deepEqual(thinkTimes([long, received(10, 360, 380)])[1], undefined);
  const [, , estimate] = thinkTimes([long, received(2000, 2100, 2110), received(10, 360, 380)]);
  assert.deepEqual(estimate, { seconds: 0.05, from: 'estimate' });
});

test('typical think time is not used for a response that cannot have had it', () => {
  const other = received(0, 90, 400, { connectMs: 50, kind: 'made' });
  // It took 30 to 70 ms, judged by what came before it.
  const between = received(10, 130, 380);
  const estimateBeside = (usualMs: number, response: Wait): ThinkTime | undefined =>
    thinkTimes([other, received(2000, 2050 + usualMs, 2060 + usualMs), response])[2];
  assert.deepEqual(estimateBeside(20, between), { seconds: 0.03, from: 'estimate' });
  assert.deepEqual(estimateBeside(60, between), { seconds: 0.06, from: 'estimate' });
  assert.deepEqual(estimateBeside(500, between), { seconds: 0.03, from: 'estimate' });
  // Nothing else narrows it down: 0 to 20 ms.
  const first = received(60, 130, 380);
  assert.deepEqual(estimateBeside(15, first), { seconds: 0.015, from: 'estimate' });
  assert.equal(estimateBeside(500, first), undefined);
});

test('document of the page does not affect the think times of other responses', () => {
  const waits = (mainDocument: boolean): Wait[] => [
    received(0, 450, 460, { connectMs: 50, kind: 'made', mainDocument }),
    received(470, 520, 1500),
    received(480, 1000, 1010, { kind: 'made' }),
  ];
  assert.deepEqual(seconds(thinkTimes(waits(true))), [0.4, 0, undefined]);
  assert.deepEqual(seconds(thinkTimes(waits(false))), [0.4, 0, 0.4]);
});

test("slow document does not affect the think times of its origin's files", () => {
  const page = [
    received(0, 450, 460, { connectMs: 50, kind: 'made' }),
    received(470, 520, 900),
    received(470, 880, 910),
  ];
  assert.deepEqual(seconds(thinkTimes(page)), [0.4, 0, 0]);
  // Without a file that arrived alone, the time of files is unknown.
  const other = received(470, 520, 900, { kind: 'made' });
  assert.deepEqual(seconds(thinkTimes([page[0] as Wait, other, page[2] as Wait])), [
    0.4,
    0,
    undefined,
  ]);
});

test('slow link adds no think time, over however many connections the page loads', () => {
  // 1 Mbit/s is shared, packet by packet, by six connections to two origins that request at once;
  // the server answers at once.
  const packetMs = 12;
  const responses = Array.from({ length: 30 }, (_, at) => ({
    origin: at % 3 === 0 ? 'images.test:443' : SHOP,
    sentMs: 5 * (at % 7),
    packets: 3 + ((at * 5) % 11),
    seen: [] as number[],
  }));
  let now = 50;
  for (let left = true; left;) {
    left = false;
    // Six responses at a time share the link, as with six connections.
    for (const one of responses.filter(({ packets, seen }) => seen.length < packets).slice(0, 6)) {
      now += packetMs;
      one.seen.push(now);
      left = true;
    }
  }
  const found = thinkTimes(
    responses.map(({ origin, sentMs, seen }, at) =>
      received(sentMs, seen[0] ?? 0, seen.at(-1) ?? 0, {
        origin,
        ...(at < 6 && { connectMs: 50 }),
      }),
    ),
  );
  assert.ok(now > 2000);
  for (const each of found) assert.ok((each?.seconds ?? 0) <= 0.02, JSON.stringify(found));
});

test('recording reports how many think times were counted, and warns if few were', () => {
  const entry = (thinkFrom?: 'wait' | 'estimate', thinkSeconds: number | undefined = 0.1) => ({
    thinkFrom,
    thinkSeconds,
  });
  const good = countThinkTimes([entry('wait'), entry('wait'), entry('estimate'), {}]);
  assert.equal(describeThinkTimes(good), '2 counted, 1 estimated, 1 left out');
  assert.equal(thinkTimesWarning(good), undefined);
  const few = countThinkTimes([entry('wait'), entry('estimate'), {}]);
  assert.match(
    thinkTimesWarning(few) ?? '',
    /^only 1 of 3 think times were counted; .* estimated \(1\) or left out \(1\)/,
  );
  assert.equal(thinkTimesWarning(countThinkTimes([{}, {}])), undefined);
  const old = countThinkTimes([entry(), entry()]);
  assert.match(
    thinkTimesWarning(old) ?? '',
    /^2 think times may include time behind other responses/,
  );
});

test('kind of a response is derived from its media type', () => {
  const kinds = [
    'text/html',
    'application/json',
    undefined,
    'text/css',
    'text/javascript; charset=utf-8',
    'image/png',
  ];
  assert.deepEqual(kinds.map(kindOf), ['made', 'made', 'made', 'file', 'file', 'file']);
  assert.equal(kindOf('font/woff2'), 'file');
});

/** Simulates a session of the developer tools. */
class Session {
  readonly #listeners = new Map<string, ((event: unknown) => void)[]>();

  on(method: string, listener: (event: unknown) => void): void {
    this.#listeners.set(method, [...(this.#listeners.get(method) ?? []), listener]);
  }

  async send(): Promise<{ body: string; base64Encoded: boolean }> {
    return Promise.resolve({ body: 'content', base64Encoded: false });
  }

  emit(method: string, event: object): void {
    for (const listener of this.#listeners.get(method) ?? []) listener(event);
  }
}

test('recorder takes times, connections and cached requests from the developer tools', async () => {
  const session = new Session();
  const recorder = new Recorder();
  await recorder.attach(session as never);
  const load = (
    requestId: string,
    at: number,
    waitMs: number,
    endAt: number,
    more: object = {},
  ): void => {
    const url = `https://shop.test/${requestId}.png`;
    session.emit('Network.requestWillBeSent', {
      requestId,
      request: { method: 'GET', url },
      timestamp: at,
    });
    const timing = {
      ...{ requestTime: at, proxyEnd: -1, connectStart: -1, connectEnd: -1, sslStart: -1 },
      ...{ sendEnd: 1, receiveHeadersStart: 1 + waitMs },
      ...more,
    };
    const response = {
      status: 200,
      mimeType: 'image/png',
      headers: {},
      protocol: 'h2',
      connectionId: 9,
      timing,
    };
    session.emit('Network.responseReceived', { requestId, response, hasExtraInfo: false });
    session.emit('Network.dataReceived', { requestId, timestamp: endAt, encodedDataLength: 5 });
    session.emit('Network.loadingFinished', { requestId, timestamp: endAt, encodedDataLength: 9 });
  };
  load('opens', 100, 50, 100.06, {
    connectStart: 1,
    sslStart: 51,
    connectEnd: 110,
    sendEnd: 111,
    receiveHeadersStart: 161,
  });
  // A half-open connection is clipped at the request's start, and gives no information.
  load('clipped', 200, 350, 200.4, { connectStart: 0, sslStart: 4, connectEnd: 60 });
  for (let at = 0; at < 8; at++) load(`behind-${at}`, 300, 50 + 100 * at, 300.151 + 0.1 * at);
  load('slow', 400, 350, 400.36);
  load('cached', 400, 350, 400.36);
  session.emit('Network.requestServedFromCache', { requestId: 'cached' });
  const { exchanges } = await recorder.result();
  const found = exchanges.map(({ url, think }) => [
    /(\w+)[^/]*\.png/.exec(url)?.[1],
    think?.seconds,
  ]);
  const behind = Array.from({ length: 8 }, () => ['behind', 0]);
  assert.deepEqual(found, [
    ['opens', 0],
    ['clipped', 0.3],
    ...behind,
    ['slow', 0.3],
    ['cached', undefined],
  ]);
});

test("recorder distinguishes the page's own document from others", async () => {
  const session = new Session();
  const recorder = new Recorder();
  await recorder.attach(session as never);
  const load = (
    requestId: string,
    frameId: string,
    sentMs: number,
    waitMs: number,
    endMs: number,
    type = 'Document',
  ): void => {
    const timestamp = sentMs / 1000;
    const request = { method: 'GET', url: `https://shop.test/${requestId}` };
    session.emit('Network.requestWillBeSent', { requestId, request, timestamp, type, frameId });
    const none = { proxyEnd: -1, connectStart: -1, connectEnd: -1, sslStart: -1 };
    const timing = { requestTime: timestamp, ...none, sendEnd: 0, receiveHeadersStart: waitMs };
    const mimeType = type === 'Document' ? 'text/html' : 'text/css';
    const response = {
      status: 200,
      mimeType,
      headers: {},
      protocol: 'h2',
      connectionId: 9,
      timing,
    };
    session.emit('Network.responseReceived', { requestId, response, hasExtraInfo: false });
    session.emit('Network.loadingFinished', {
      requestId,
      timestamp: endMs / 1000,
      encodedDataLength: 9,
    });
  };
  load('page', 'main', 0, 450, 460);
  load('long.css', 'main', 470, 50, 1500, 'Stylesheet');
  load('frame', 'child', 480, 520, 1010);
  const { exchanges } = await recorder.result();
  assert.deepEqual(
    exchanges.map(({ think }) => think?.seconds),
    [0.4, 0, undefined],
  );
});
