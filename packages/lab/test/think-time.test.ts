import assert from 'node:assert/strict';
import test from 'node:test';
import { thinkTimes, type Wait } from '../src/capture/think-time.js';

const wait = (waitMs: number | undefined, connectMs?: number, origin = 'shop.test:443'): Wait => ({
  ...{ origin, waitMs, connectMs },
});

test('think time is what a response let wait beyond the round trip of its origin', () => {
  assert.deepEqual(thinkTimes([wait(350, 52), wait(50), wait(171.25)]), [0.3, 0, 0.1213]);
  // The connection's own time says it where no response was quick.
  assert.deepEqual(thinkTimes([wait(350, 50), wait(450)]), [0.3, 0.4]);
});

test('round trip is that of each origin', () => {
  assert.deepEqual(thinkTimes([wait(250, 50), wait(250, 10, 'images.test:443')]), [0.2, 0.24]);
});

test('wait that is not known is no think time, and one request alone tells none', () => {
  assert.deepEqual(thinkTimes([wait(undefined), wait(-1), wait(80, 0)]), [undefined, undefined, 0]);
  assert.deepEqual(thinkTimes([]), []);
});

test('think time is no longer than a replay takes', () => {
  assert.deepEqual(thinkTimes([wait(10), wait(3_600_000)]), [0, 600]);
});
