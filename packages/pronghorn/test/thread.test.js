'use strict';

// In hosts whose event loop is not libuv, another thread polls the listeners. This test makes
// Node.js do the same.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { Worker } = require('node:worker_threads');
require('./support/by-thread');
const uWS = require('..');
const { tls } = require('./support/certificate');
const { faces, listening } = require('./support/clients');

/** The name of a thread of this process; `undefined` if it has ended since it was listed. */
function nameOf(task) {
  try {
    return fs.readFileSync(path.join('/proc/self/task', task, 'comm'), 'utf8').trim();
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return undefined;
    throw error;
  }
}

/** Returns the number of threads of this process that wait for listeners. */
function waiting() {
  return fs.readdirSync('/proc/self/task').filter((task) => nameOf(task) === 'pronghorn-poll')
    .length;
}

/** Waits for this number of threads: a thread gets its name when it first runs. */
async function untilWaiting(count) {
  while (waiting() !== count) await new Promise((resolve) => setTimeout(resolve, 1));
}

describe('polling on a thread', { timeout: 300_000 }, () => {
  it('has one thread for each listener, which ends with the listener', async () => {
    const app = uWS.App().get('/*', (res) => res.end('x'));
    const port = listening(app);
    listening(app);
    await untilWaiting(2);
    assert.equal((await faces[0].request(port)).status, 200);
    app.close();
    await untilWaiting(0);
  });

  it('allows closing a listener from its own handler', async () => {
    const app = uWS.App();
    const ended = new Promise((resolve) => {
      app.get('/*', (res) => {
        res.end('last');
        resolve(app.close({ timeout: 1000 }));
      });
    });
    assert.equal((await faces[0].request(listening(app))).status, 200);
    await ended;
    await untilWaiting(0);
  });

  it('ends with worker threads, whether they close or are terminated', async () => {
    const start = (kind, port) =>
      new Promise((resolve, reject) => {
        const workerData = { port, kind, tls, byThread: true };
        const thread = new Worker(path.join(__dirname, 'support', 'worker.js'), { workerData });
        thread.once('message', (bound) => resolve({ thread, bound }));
        thread.once('error', reject);
      });
    for (const [kind, face] of [
      ['App', faces[0]],
      ['H3App', faces.at(-1)],
    ]) {
      const closed = await start(kind, 0);
      const terminated = await start(kind, closed.bound);
      await untilWaiting(2);
      for (let round = 0; round < 4; round++)
        assert.equal((await face.request(closed.bound)).status, 200);
      await terminated.thread.terminate();
      closed.thread.postMessage('close');
      assert.equal(await new Promise((resolve) => closed.thread.once('exit', resolve)), 0);
      await untilWaiting(0);
    }
  });
});
