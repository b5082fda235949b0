'use strict';

// State that half an hour of mixed load leaves behind: requests, uploads, disconnecting clients and
// WebSocket connections of both kinds, over all protocols, on a cluster of two processes with two
// threads each. PRONGHORN_MIXED_MINUTES sets the duration. `npm run test:memory` runs it.

const assert = require('node:assert/strict');
const cluster = require('node:cluster');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const http2 = require('node:http2');
const https = require('node:https');
const net = require('node:net');
const path = require('node:path');
const { it } = require('node:test');
const { WebSocket } = require('ws');
const { overHttp3 } = require('../support/clients');
const { tls } = require('../support/certificate');

const program =
  process.env.PRONGHORN ??
  path.join(__dirname, '..', '..', '..', '..', 'target', 'release', 'pronghorn');
const MINUTES = Number(process.env.PRONGHORN_MIXED_MINUTES ?? 30);
const MIB = 1 << 20;
/** Growth from the middle to the end of the run: a leak grows with each of some 100,000 requests. */
const HEAP_GROWTH = 1 * MIB;
const RESIDENT_GROWTH = 12 * MIB;

/** Resolves on 'close', even after an 'error', unlike `once`. */
const closed = (emitter) => new Promise((resolve) => emitter.once('close', resolve));

const trusting = { rejectUnauthorized: false, servername: 'localhost' };

/** Returns a free port. The cluster's processes share a port only if they request the same one. */
async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** A process of the cluster. */
async function fork(port) {
  const worker = cluster.fork({
    PRONGHORN_TEST_TLS: JSON.stringify(tls),
    PRONGHORN_TEST_PORT: String(port),
  });
  worker.on('exit', (code, signal) =>
    worker.ending ? undefined : assert.fail(`a worker ended: ${code ?? signal}`),
  );
  const [said] = await once(worker, 'message');
  assert.equal(said, 'listens');
  return { worker };
}

async function measure({ worker }) {
  worker.send('measure');
  const [threads] = await once(worker, 'message');
  return threads;
}

/** Sends requests with `pronghorn load` at a limited rate. Returns the number of responses. */
async function load(port, version, seconds) {
  const urls = ['', 'later'].map((name) => `https://127.0.0.1:${port}/${name}`);
  const bounds = ['-d', seconds, '--rate', 300, '-c', 8, '-m', version === '1.1' ? 1 : 8];
  const given = [
    'load',
    '--json',
    '--no-verify',
    '--http',
    version,
    '--timeout',
    120,
    ...bounds,
    ...urls,
  ];
  const child = spawn(program, given.map(String), { stdio: ['ignore', 'pipe', 'pipe'] });
  const [words, chunks] = [[], []];
  child.stderr.on('data', (chunk) => words.push(chunk));
  child.stdout.on('data', (chunk) => chunks.push(chunk));
  await once(child, 'close');
  assert.ok(chunks.length > 0, Buffer.concat(words).toString());
  const { requests } = JSON.parse(Buffer.concat(chunks));
  assert.equal(requests.errors.total, 0, JSON.stringify(requests.errors));
  return requests.status['2xx'];
}

/** HTTP/1.1 clients that disconnect in the middle of a request or a response. */
async function leave(port, number) {
  const isUpload = number % 2 === 0;
  const request = https.request({
    ...trusting,
    host: '127.0.0.1',
    port,
    agent: false,
    path: isUpload ? '/upload' : '/endless',
    method: isUpload ? 'POST' : 'GET',
    headers: isUpload ? { 'content-length': 1 << 20 } : {},
  });
  request.on('error', () => {});
  if (isUpload) {
    await new Promise((resolve) => request.write(Buffer.alloc(10_000), resolve));
  } else {
    request.end();
    const [response] = await once(request, 'response');
    response.on('error', () => {});
    await once(response, 'data');
  }
  const closing = closed(request);
  request.destroy();
  await closing;
}

/** The same on streams of one HTTP/2 connection, the last of which ends the connection. */
async function leaveOverHttp2(port) {
  const session = http2.connect(`https://127.0.0.1:${port}`, trusting);
  session.on('error', () => {});
  for (let number = 0; number < 4; number++) {
    const stream = session.request({ ':path': '/endless' });
    stream.on('error', () => {});
    await once(stream, 'data');
    const closing = closed(stream);
    stream.close(http2.constants.NGHTTP2_CANCEL);
    await closing;
  }
  const closing = closed(session);
  session.destroy();
  await closing;
}

/** A WebSocket connection that is used and then closed or dropped. */
async function talk(port, number) {
  const client = new WebSocket(`wss://127.0.0.1:${port}/echo`, trusting);
  await once(client, 'open');
  for (const size of [1, 1000, 100_000]) {
    client.send(Buffer.alloc(size, number));
    const [answer] = await once(client, 'message');
    assert.equal(answer.length, size);
  }
  const closing = closed(client);
  if (number % 3 === 0) client.terminate();
  else client.close(1000);
  await closing;
}

it(
  `${MINUTES} minutes of mixed load leave no state behind`,
  { timeout: (MINUTES + 10) * 60_000 },
  async (t) => {
    cluster.setupPrimary({
      exec: path.join(__dirname, 'mixed-server.js'),
      // As in memory.test.js.
      execArgv: ['--expose-gc', '--max-semi-space-size=1'],
    });
    const port = await freePort();
    const processes = [await fork(port), await fork(port)];
    t.after(() => {
      for (const { worker } of processes) {
        worker.ending = true;
        worker.process.kill();
      }
    });

    const end = Date.now() + MINUTES * 60_000;
    const done = { requests: 0, left: 0, leftOverHttp2: 0, leftOverHttp3: 0, talks: 0 };
    /** Repeats an operation until the time is over. */
    const again = async (what, name) => {
      for (let number = 0; Date.now() < end; number++) {
        const count = await what(number);
        done[name] += count ?? 1;
      }
    };
    const versions = ['1.1', '2', '3'];
    const loads = [
      again((number) => load(port, versions[number % 3], Math.min(10, MINUTES * 6)), 'requests'),
      again((number) => leave(port, number), 'left'),
      again(() => leaveOverHttp2(port), 'leftOverHttp2'),
      again(async (number) => {
        const abort = ['now', 'head', 'connection'][number % 3];
        await overHttp3(port, { path: '/endless', abort });
      }, 'leftOverHttp3'),
      again((number) => talk(port, number), 'talks'),
    ];
    const samples = [];
    const sampling = (async () => {
      for (let part = 1; part <= 6; part++) {
        const at = end - MINUTES * 60_000 * (1 - part / 6);
        await new Promise((resolve) => setTimeout(resolve, Math.max(0, at - Date.now())));
        samples.push(await Promise.all(processes.map(measure)));
      }
    })();
    await Promise.all([...loads, sampling]);

    const shown = (bytes) => `${(bytes / MIB).toFixed(1)} MiB`;
    t.diagnostic(JSON.stringify(done));
    for (const [part, sample] of samples.entries()) {
      const parts = sample.map(
        (threads) =>
          `${shown(threads[0].rss)}, heaps ${threads.map(({ heapUsed }) => shown(heapUsed)).join(' and ')}`,
      );
      t.diagnostic(`after ${(((part + 1) * MINUTES) / 6).toFixed(1)} minutes: ${parts.join('; ')}`);
    }
    // All clients have disconnected.
    let last;
    for (let attempt = 0; attempt < 300; attempt++) {
      last = (await Promise.all(processes.map(measure))).flat();
      if (last.every(({ open, unanswered, clients }) => open + unanswered + clients === 0)) break;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    for (const { open, unanswered, clients, troubles } of last) {
      assert.deepEqual(
        { open, unanswered, clients, troubles },
        { open: 0, unanswered: 0, clients: 0, troubles: [] },
      );
    }
    for (const [name, count] of Object.entries(done)) assert.ok(count > 0, name);
    const [middle, final] = [samples[2], samples[5]];
    for (const [index, threads] of final.entries()) {
      assert.ok(threads[0].rss - middle[index][0].rss < RESIDENT_GROWTH, 'memory of a process');
      for (const [number, { heapUsed }] of threads.entries()) {
        assert.ok(heapUsed - middle[index][number].heapUsed < HEAP_GROWTH, 'heap of a thread');
      }
    }
  },
);
