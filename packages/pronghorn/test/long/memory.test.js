'use strict';

// Memory that ten thousand idle connections and a million requests leave behind. `npm run
// test:memory` runs it, as part of `make test-long`. The load generator is the program `pronghorn`
// at the path in PRONGHORN.

const assert = require('node:assert/strict');
const { fork, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { it } = require('node:test');
const { tls } = require('../support/certificate');

const program =
  process.env.PRONGHORN ??
  path.join(__dirname, '..', '..', '..', '..', 'target', 'release', 'pronghorn');
const REQUESTS = Number(process.env.PRONGHORN_MEMORY_REQUESTS ?? 1_000_000);
const CONNECTIONS = Number(process.env.PRONGHORN_MEMORY_CONNECTIONS ?? 10_000);
/** Uses each connection every 20 seconds, before the clients' idle timeout. */
const IDLE_RATE = Math.ceil(CONNECTIONS / 20);
const MINUTES = 20;

const KIB = 1024;
const MIB = 1024 * KIB;
/** Heaps vary by this much with the code compiled meanwhile. */
const SLACK = 512 * KIB;
/** Per connection: less than a JavaScript object and the reference to it. */
const HEAP_OF_CONNECTIONS = CONNECTIONS * 32 + SLACK;
/** Per request: less than the smallest object, which has 12 bytes. */
const HEAP_OF_REQUESTS = REQUESTS + SLACK;
const RESIDENT_OF_REQUESTS = REQUESTS * 8 + SLACK;
/** Buffers grow to their limits once, a leak in each round: one round without growth suffices. */
const ROUNDS = 3;
/** docs/limits.md states the memory limit of a connection; an idle one uses far less. */
const RESIDENT_OF_CONNECTION = 64 * KIB;

const kinds = [
  { kind: 'App', version: '1.1', scheme: 'http', connections: 50, streams: 1 },
  { kind: 'H3App', version: '3', scheme: 'https', connections: 10, streams: 50 },
  { kind: 'Server', version: '2', scheme: 'https', connections: 10, streams: 50 },
];

/** Starts a server that runs until the test ends. */
async function serve(kind, t) {
  const limits = {
    connections_per_client: 4 * CONNECTIONS,
    idle_timeout: '1h',
    handshake_timeout: '10m',
  };
  const options = kind === 'App' ? { limits } : { ...tls, limits };
  const child = fork(path.join(__dirname, 'memory-server.js'), [kind, JSON.stringify(options)], {
    // V8's young generation takes up to 48 MiB and does not reflect retained memory.
    execArgv: ['--expose-gc', '--max-semi-space-size=1'],
  });
  t.after(() => child.kill());
  const ended = once(child, 'exit').then(() => assert.fail('the server has ended'));
  ended.catch(() => {});
  const next = () => Promise.race([once(child, 'message').then(([message]) => message), ended]);
  const { port } = await next();
  const ask = (what) => {
    child.send(what);
    return next();
  };
  return { port, ask };
}

/** Runs `pronghorn load`. */
function load({ version, scheme }, port, more) {
  const urls = ['now', 'later'].map((name) => `${scheme}://127.0.0.1:${port}/${name}`);
  const trust = scheme === 'https' ? ['--no-verify'] : [];
  const given = [
    'load',
    '--json',
    '--http',
    version,
    '--timeout',
    '600',
    ...trust,
    ...more.map(String),
    ...urls,
  ];
  const child = spawn(program, given, { stdio: ['ignore', 'pipe', 'pipe'] });
  const chunks = [];
  const words = [];
  child.stdout.on('data', (chunk) => chunks.push(chunk));
  child.stderr.on('data', (chunk) => words.push(chunk));
  const report = once(child, 'close').then(() => {
    assert.ok(chunks.length > 0, Buffer.concat(words).toString());
    return JSON.parse(Buffer.concat(chunks));
  });
  report.catch(() => {});
  return { report, interrupt: () => child.kill('SIGINT') };
}

/** Polls the counts of connections and requests until they satisfy `condition`. */
async function until(server, what, condition) {
  const end = Date.now() + MINUTES * 60_000;
  for (;;) {
    const counts = await server.ask('count');
    if (condition(counts)) return;
    assert.ok(Date.now() < end, `${what}: ${JSON.stringify(counts)}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const [, files] = /^Max open files +(\d+)/m.exec(fs.readFileSync('/proc/self/limits', 'utf8'));
assert.ok(
  Number(files) > CONNECTIONS + 500,
  `only ${files} files may be open: ulimit -n ${2 * CONNECTIONS}`,
);
assert.ok(
  fs.existsSync(program),
  `there is no ${program}: run make build-program, or set PRONGHORN`,
);

for (const way of kinds) {
  const { kind, connections, streams } = way;
  it(
    `${kind} retains no requests and connections`,
    { timeout: 3 * MINUTES * 60_000 },
    async (t) => {
      const server = await serve(kind, t);
      const requests = async (count) => {
        const bounds = ['-n', count, '-d', MINUTES * 60, '-c', connections, '-m', streams];
        const { requests: seen } = await load(way, server.port, bounds).report;
        assert.deepEqual([seen.status['2xx'], seen.errors.total], [count, 0]);
      };
      // After it, heaps, tables and connections have reached their working size.
      const warmUp = () => requests(Math.ceil(REQUESTS / 5));
      await warmUp();
      await until(server, 'connections of the warm-up end', ({ open }) => open === 0);
      const warm = await server.ask('measure');

      const idle = load(way, server.port, [
        '-c',
        CONNECTIONS,
        '--rate',
        IDLE_RATE,
        '-d',
        3 * MINUTES * 60,
      ]);
      const held = [];
      try {
        const asked = (await server.ask('count')).requests;
        await until(server, 'all connections are used', (now) => {
          return now.open === CONNECTIONS && now.requests >= asked + CONNECTIONS;
        });
        await warmUp();
        for (let round = 0; round <= ROUNDS; round++) {
          await until(server, 'all connections are open', ({ open }) => open === CONNECTIONS);
          held.unshift(await server.ask('measure'));
          if (round > 0 && held[0].rss - held[1].rss < RESIDENT_OF_REQUESTS) break;
          if (round < ROUNDS) await requests(REQUESTS);
        }
      } finally {
        idle.interrupt();
      }
      await idle.report;
      await until(server, 'all connections end', ({ open }) => open === 0);
      const end = await server.ask('measure');

      const first = held.at(-1);
      const [after, before] = held;
      const figures = [
        ['warm', warm],
        ...held.toReversed().map((round, number) => [`after ${number} rounds`, round]),
        ['end', end],
      ];
      for (const [name, { rss, heapUsed, external }] of figures) {
        const shown = [rss, heapUsed, external].map((bytes) => (bytes / MIB).toFixed(2));
        t.diagnostic(
          `${kind} ${name}: resident ${shown[0]} MiB, heap ${shown[1]} MiB, beside it ${shown[2]} MiB`,
        );
      }
      assert.deepEqual([warm.unanswered, end.unanswered], [0, 0]);
      assert.ok(first.heapUsed - warm.heapUsed < HEAP_OF_CONNECTIONS, 'heap of connections');
      assert.ok(
        first.rss - warm.rss < CONNECTIONS * RESIDENT_OF_CONNECTION,
        'memory of connections',
      );
      assert.ok(after.heapUsed - first.heapUsed < HEAP_OF_REQUESTS, 'heap of requests');
      assert.ok(after.rss - before.rss < RESIDENT_OF_REQUESTS, 'memory of requests');
      assert.ok(end.heapUsed - warm.heapUsed < HEAP_OF_REQUESTS, 'heap at the end');
    },
  );
}
