'use strict';

// Worker processes of node:cluster share their ports. This process is the primary.

const assert = require('node:assert/strict');
const cluster = require('node:cluster');
const { once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { after, afterEach, describe, it } = require('node:test');
const uWS = require('..');
const h3 = require('./support/h3');
const { tls } = require('./support/certificate');
const { faces, overHttp2, overHttp3, secure } = require('./support/clients');

/**
 * Enough clients that the kernel assigns some to each of a few processes, except with a probability
 * of one in a million.
 */
const CLIENTS = 40;
const folder = `/tmp/pronghorn-${process.getuid()}`;
const isRoot = process.getuid() === 0;

cluster.setupPrimary({ exec: path.join(__dirname, 'support', 'cluster-worker.js') });

const clear = faces[0].request;
const overAll = { 'HTTP/1.1': secure, 'HTTP/2': overHttp2, 'HTTP/3': overHttp3 };
const doors = [
  ['App', { 'HTTP/1.1': clear }],
  ['SSLApp', { 'HTTP/1.1': secure, 'HTTP/2': overHttp2 }],
  ['H3App', { 'HTTP/3': overHttp3 }],
  ['Server', overAll],
  ['http', overAll],
  ['fetch', overAll],
  ['srvx', overAll],
];

let last = 0;

/**
 * A worker, and a function that sends it an operation. `isOther`: a test has changed the worker, so
 * the next test cannot use it.
 */
async function fork() {
  const worker = cluster.fork({ PRONGHORN_TEST_TLS: JSON.stringify(tls) });
  await once(worker, 'online');
  const ask = (action, given = {}) =>
    new Promise((resolve, reject) => {
      const id = ++last;
      const ended = (code, signal) => reject(new Error(`the worker ended with ${code ?? signal}`));
      const heard = (answer) => {
        if (answer.id !== id) return;
        worker.off('message', heard);
        worker.off('exit', ended);
        resolve(answer);
      };
      worker.on('message', heard);
      worker.on('exit', ended);
      worker.send({ id, action, ...given });
    });
  return { worker, pid: String(worker.process.pid), ask, isOther: false };
}

async function end(...all) {
  const exits = all
    .filter(({ worker }) => !worker.isDead())
    .map(({ worker }) => once(worker, 'exit'));
  for (const { worker } of all) worker.process.kill('SIGKILL');
  await Promise.all(exits);
}

const listen = async (of, given) => {
  const { port, error } = await of.ask('listen', { port: 0, ...given });
  assert.equal(error, undefined);
  return port;
};

/** Makes a worker change its user. */
async function become(one, user) {
  one.isOther = true;
  assert.equal((await one.ask('become', { user })).error, undefined);
}

/** Returns the worker that answers a request, which has to succeed. */
async function who(request, port, more) {
  const answer = await request(port, more);
  assert.equal(answer.status, 200, JSON.stringify(answer));
  return answer.body.toString();
}

/** Sends requests until each of these workers has answered. */
async function untilAll(request, port, all) {
  const seen = new Set();
  for (let count = 0; seen.size < all.length; count++) {
    assert.ok(count < 10 * CLIENTS, `${[...seen]} alone answer`);
    seen.add(await who(request, port));
  }
  assert.deepEqual([...seen].sort(), all.map(({ pid }) => pid).sort());
}

/** Returns a counter summed over these workers. */
async function count(name, all) {
  const statistics = await Promise.all(all.map(({ ask }) => ask('statistics')));
  return statistics.reduce((sum, counters) => sum + (counters[name] ?? 0), 0);
}

/** Directories of this cluster. */
function directories() {
  const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
  return names.filter((name) => name.startsWith(`${process.pid}-`));
}

describe('a cluster', { timeout: 300_000 }, () => {
  /** State of the tests. */
  let forked = [];
  /**
   * Two workers without servers. Starting them takes longer than most tests, so each test leaves
   * them to the next one.
   */
  const start = async () => {
    forked.push(...(await Promise.all(Array.from({ length: 2 - forked.length }, fork))));
    await Promise.all(forked.map(({ ask }) => ask('reset')));
    return forked;
  };
  afterEach(async () => {
    const [kept, others] = [[], []];
    for (const one of forked)
      (one.worker.isConnected() && kept.length < 2 && !one.isOther ? kept : others).push(one);
    forked = kept;
    await end(...others);
  });
  after(() => end(...forked));

  for (const [door, requests] of doors) {
    it(`shares the port of ${door} over ${Object.keys(requests).join(', ')}`, async () => {
      const [one, other] = await start();
      const port = await listen(one, { door });
      assert.equal(await listen(other, { door }), port);
      for (const request of Object.values(requests)) await untilAll(request, port, [one, other]);
    });
  }

  it('gives all workers the same ports for port 0, in the order of their calls', async () => {
    const [one, other] = await start();
    for (const door of ['App', 'Server', 'node:http', 'http']) {
      const ports = [await listen(one, { door }), await listen(one, { door })];
      assert.notEqual(ports[0], ports[1], door);
      assert.deepEqual([await listen(other, { door }), await listen(other, { door })], ports, door);
    }
  });

  it('reports listening sockets to the primary as node:http does', async () => {
    const [one] = await start();
    const told = async (door, given) => {
      const listening = once(cluster, 'listening');
      const port = await listen(one, { door, ...given });
      const [worker, address] = await listening;
      assert.equal(worker, one.worker);
      assert.equal(address.port, port);
      delete address.port;
      return address;
    };
    for (const host of [undefined, '127.0.0.1', '::1', '0.0.0.0']) {
      const expected = await told('node:http', { host });
      for (const door of ['App', 'Server', 'http', 'fetch', 'srvx']) {
        // Programs for srvx listen on HOST by default.
        assert.deepEqual(await told(door, { host }), expected, `${door} on ${host}`);
      }
    }
    assert.equal((await told('H3App', { host: '127.0.0.1' })).addressType, 'udp4');
    assert.equal((await told('H3App', { host: '::1' })).addressType, 'udp6');
  });

  it('keeps a QUIC connection in its process, whichever process receives its datagrams', async () => {
    const [one, other] = await start();
    const port = await listen(one, { door: 'Server' });
    assert.equal(await listen(other, { door: 'Server' }), port);
    const connection = { connection: `rebinding ${port}` };
    const owner = await who(h3.request, port, connection);
    for (let index = 0; index < CLIENTS / 2; index++) {
      assert.equal(await who(h3.request, port, { ...connection, rebind: true }), owner);
    }
    assert.ok((await count('strays_passed_on', forked)) > 0);
    assert.equal(await count('quic_accepted', forked), 1);
  });

  it('keeps QUIC connections when a worker joins, and those of the other workers when one exits or is killed', async () => {
    const [one, other] = await start();
    const port = await listen(one, { door: 'H3App' });
    assert.equal(await listen(other, { door: 'H3App' }), port);
    const names = Array.from({ length: CLIENTS }, (_, index) => ({
      connection: `changes ${port} ${index}`,
    }));
    const owners = await Promise.all(names.map((name) => who(h3.request, port, name)));
    const assertOwners = async (but) => {
      for (const [index, name] of names.entries()) {
        if (owners[index] !== but) assert.equal(await who(h3.request, port, name), owners[index]);
      }
    };
    const third = await fork();
    forked.push(third);
    assert.equal(await listen(third, { door: 'H3App' }), port);
    await assertOwners();
    const passed = await count('strays_passed_on', forked);
    assert.ok(passed > 0);
    // A worker that accepts no new connections keeps its own, and forwards new ones that the kernel
    // assigns to it.
    await one.ask('stop', { number: 0 });
    await assertOwners();
    for (let index = 0; index < CLIENTS; index++)
      assert.notEqual(await who(h3.request, port), one.pid);
    await end(other);
    await assertOwners(other.pid);
  });

  it('keeps serving without a killed worker, whose number is reused', async () => {
    const [one, other] = await start();
    const port = await listen(one, { door: 'Server' });
    assert.equal(await listen(other, { door: 'Server' }), port);
    const numbers = () => {
      const [directory] = directories().filter((name) => name.includes(':0-'));
      return fs
        .readdirSync(path.join(folder, directory))
        .filter((name) => name.endsWith('.sock'))
        .sort();
    };
    assert.deepEqual(numbers(), ['0.sock', '1.sock']);
    await end(one);
    for (const request of Object.values(overAll)) {
      for (let index = 0; index < 5; index++) assert.equal(await who(request, port), other.pid);
    }
    const next = await fork();
    forked.push(next);
    assert.equal(await listen(next, { door: 'Server' }), port);
    assert.deepEqual(numbers(), ['0.sock', '1.sock']);
    for (const request of Object.values(overAll)) await untilAll(request, port, [other, next]);
  });

  it('refreshes the timestamps of its shared files', async () => {
    const [one] = await start();
    await listen(one, { door: 'Server' });
    const [directory] = directories().filter((name) => name.includes(':0-'));
    const all = ['', ...fs.readdirSync(path.join(folder, directory))].map((name) =>
      path.join(folder, directory, name),
    );
    const times = () =>
      [folder, ...all]
        .map((file) => fs.lstatSync(file))
        .flatMap((stat) => [stat.atimeMs, stat.mtimeMs]);
    const now = Date.now();
    for (const file of [...all, folder]) fs.lutimesSync(file, 1000, 1000);
    assert.deepEqual(new Set(times()), new Set([1_000_000]));
    for (let count = 0; times().some((time) => time < now - 1000); count++) {
      assert.ok(count < 1200, 'the files are old');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });

  it('resets QUIC connections that a process with a changed user cannot forward', async (t) => {
    if (process.getuid() !== 0) return t.skip('it takes root to become another user');
    const [one, other] = await start();
    const port = await listen(one, { door: 'H3App' });
    assert.equal(await listen(other, { door: 'H3App' }), port);
    for (const one of forked) await become(one, 65534);
    for (let index = 0; (await count('stateless_resets_sent', forked)) === 0; index++) {
      assert.ok(index < CLIENTS, 'nothing is reset');
      const connection = { connection: `left ${port} ${index}`, idle_timeout: 5 };
      await who(h3.request, port, connection);
      // This client ignores stateless resets.
      await h3.request(port, { ...connection, rebind: true });
    }
    return who(h3.request, port);
  });

  describe(
    'whose directory name another user has taken',
    { skip: isRoot ? false : 'it takes root to become another user' },
    () => {
      /** A user that no other test uses. */
      let user = 1_000_000 + process.pid;
      const places = () => ['/tmp', '/dev/shm'].map((place) => `${place}/pronghorn-${user}`);
      afterEach(async () => {
        // The workers release the folder when they end.
        await end(...forked);
        for (const place of places()) fs.rmSync(place, { recursive: true, force: true });
        user += 1_000_000;
      });

      it('uses another directory', async () => {
        fs.mkdirSync(places()[0], { mode: 0o700 });
        const [one, other] = await start();
        for (const each of [one, other]) await become(each, user);
        const port = await listen(one, { door: 'App' });
        assert.equal(await listen(other, { door: 'App' }), port);
        await untilAll(clear, port, [one, other]);
      });

      it('names the owner of the directory if no directory is usable', async () => {
        for (const place of places()) fs.mkdirSync(place, { mode: 0o700 });
        const [one] = await start();
        await become(one, user);
        for (const door of ['App', 'http', 'fetch', 'srvx']) {
          const { error } = await one.ask('listen', { door, port: 0, host: '127.0.0.1' });
          assert.equal(error.code, 'ERR_PRONGHORN_CLUSTER', door);
          assert.equal(
            error.message,
            'cannot share 127.0.0.1:0 with the other processes of the cluster: ' +
              `the directory ${places()[0]} belongs to another user (uid 0): have that user or root remove it`,
          );
        }
      });
    },
  );

  it('does not share an exclusive port', async () => {
    const [one, other] = await start();
    for (const door of ['App', 'H3App', 'Server', 'node:http', 'http']) {
      const port = await listen(one, { door, exclusive: true });
      const { error } = await other.ask('listen', { door, port, exclusive: true });
      assert.equal(error?.code, 'EADDRINUSE', door);
      const shared = await other.ask('listen', { door, port });
      assert.equal(shared.error?.code, 'EADDRINUSE', door);
    }
    const port = await listen(one, { door: 'fetch', exclusive: true });
    assert.equal((await other.ask('listen', { door: 'fetch', port })).error?.code, 'EADDRINUSE');
  });

  it('listens on a port once in each process, as with node:http', async () => {
    const [one, other] = await start();
    for (const door of ['node:http', 'http']) {
      const port = await listen(one, { door });
      assert.equal(await listen(other, { door }), port);
      assert.equal((await one.ask('listen', { door, port })).error?.code, 'EADDRINUSE', door);
    }
  });

  it('does not share ports with servers outside the cluster', async () => {
    const [one, other] = await start();
    const stranger = net.createServer().listen(0);
    await once(stranger, 'listening');
    for (const door of ['App', 'Server', 'http']) {
      const { error } = await one.ask('listen', { door, port: stranger.address().port });
      assert.equal(error?.code, 'EADDRINUSE', door);
    }
    stranger.close();
    const port = await listen(one, { door: 'Server' });
    assert.equal(await listen(other, { door: 'Server' }), port);
    for (const made of [uWS.App(), uWS.H3App(tls)]) {
      made.listen(port, (socket, error) => assert.equal(error?.code, 'EADDRINUSE'));
    }
  });

  it('serves from worker threads of its workers too', async () => {
    const [one, other] = await start();
    for (const [kind, request] of [
      ['App', clear],
      ['H3App', overHttp3],
    ]) {
      const given = { door: kind, host: '127.0.0.1' };
      const port = await listen(one, given);
      assert.equal(await listen(other, given), port);
      for (const { ask } of forked)
        assert.deepEqual((await ask('thread', { port, kind })).error, undefined);
      const seen = new Set();
      for (let index = 0; seen.size < 3; index++) {
        assert.ok(index < 10 * CLIENTS, `${[...seen]} alone answer`);
        // Threads have the same number in both processes.
        seen.add(await who(request, port));
      }
    }
  });

  for (const [door, requests] of doors) {
    it(`lets ${door} drain when a worker disconnects`, async () => {
      const [one, other] = await start();
      const port = await listen(one, { door });
      const waits = new Promise((resolve) =>
        one.worker.on('message', ({ waits: is }) => is && resolve()),
      );
      const [request] = Object.values(requests).slice(-1);
      const answer = who(request, port, { path: '/wait' });
      await waits;
      assert.equal(await listen(other, { door }), port);
      const exited = once(one.worker, 'exit');
      one.worker.disconnect();
      assert.equal(await answer, one.pid);
      assert.deepEqual(await exited, [0, null]);
      assert.equal(one.worker.exitedAfterDisconnect, true);
      assert.equal(await who(request, port), other.pid);
    });
  }

  it('leaves no files behind', async () => {
    const [one, other] = await start();
    const port = await listen(one, { door: 'Server' });
    assert.equal(await listen(other, { door: 'Server' }), port);
    assert.ok(directories().length > 0);
    for (const { worker } of forked) {
      const exited = once(worker, 'exit');
      worker.disconnect();
      await exited;
    }
    // The next worker removes the directories of killed workers.
    assert.deepEqual(
      directories().filter((name) =>
        fs.readdirSync(path.join(folder, name)).some((file) => file.endsWith('.sock')),
      ),
      [],
    );
  });
});
