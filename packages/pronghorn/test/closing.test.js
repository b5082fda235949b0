'use strict';

// Connections that a running server closes, compared with node:http, and servers that are closed
// permanently.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const http = require('node:http');
const http2 = require('node:http2');
const net = require('node:net');
const path = require('node:path');
const v8 = require('node:v8');
const vm = require('node:vm');
const { describe, it } = require('node:test');
const uWS = require('..');
const pronghorn = require('../lib/http');
const { listening, overHttp2, overHttp3 } = require('./support/clients');
const { tls } = require('./support/certificate');
const { happening } = require('./support/frameworks');

const turn = () => new Promise((resolve) => setImmediate(resolve));
const listen = (server) =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

/** A server that answers '/' and returns other requests unanswered. */
async function holding(createServer, options) {
  const held = [];
  let wanted;
  const server = createServer(options, (request, response) => {
    if (request.url === '/') return response.end('hello');
    response.on('error', () => {});
    held.push(response);
    wanted?.happen();
    return undefined;
  });
  return {
    server,
    held,
    port: await listen(server),
    next: () => {
      wanted = happening();
      return wanted.promise;
    },
  };
}

describe('connections closed while the server keeps running', () => {
  /** An HTTP/1.1 connection, the bytes received, and whether it is closed. */
  async function connect(port, path) {
    const socket = net.connect(port, '127.0.0.1');
    const connection = { socket, text: '', isClosed: false };
    const closed = happening();
    socket.on('error', () => {});
    socket.on('close', () => {
      connection.isClosed = true;
      closed.happen();
    });
    connection.closed = closed.promise;
    const answered = happening();
    socket.on('data', (data) => {
      connection.text += data;
      if (connection.text.endsWith('hello')) answered.happen();
    });
    await new Promise((resolve) => socket.once('connect', resolve));
    if (path !== undefined) socket.write(`GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`);
    if (path === '/') await answered.promise;
    return connection;
  }

  /** Returns the state of each kind of connection after `close` of the server. */
  async function outcome(createServer, close) {
    const { server, held, port, next } = await holding(createServer, {});
    const idle = await connect(port, '/');
    const unused = await connect(port);
    const waits = next();
    const busy = await connect(port, '/held');
    await waits;
    const all = { idle, unused, busy };
    const left = happening();
    held[0].on('close', left.happen);
    server[close]();
    await idle.closed;
    if (close === 'closeAllConnections')
      await Promise.all([unused.closed, busy.closed, left.promise]);
    const kinds = Object.fromEntries(
      Object.entries(all).map(([kind, { isClosed }]) => [kind, isClosed]),
    );
    const isListening = server.listening;
    // The remaining connections still work.
    if (close === 'closeIdleConnections') {
      held[0].end('hello');
      unused.socket.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n');
      await Promise.all(
        [busy, unused].map(async (connection) => {
          while (!connection.isClosed && !connection.text.endsWith('hello')) await turn();
        }),
      );
    }
    const later = await connect(port, '/');
    server.close();
    server.closeAllConnections();
    await later.closed;
    return { kinds, isListening, later: later.text.split('\r\n')[0] };
  }

  for (const close of ['closeAllConnections', 'closeIdleConnections']) {
    it(`${close} behaves as in node:http`, async () => {
      const [own, theirs] = [
        await outcome(pronghorn.createServer, close),
        await outcome(http.createServer, close),
      ];
      // Node.js 26 closes connections without a request yet, although their client may be about to
      // send one.
      if (close === 'closeIdleConnections') theirs.kinds.unused = false;
      assert.deepEqual(own, theirs);
    });
  }

  it('closeIdleConnections closes idle HTTP/2 connections', async () => {
    const { server, held, port, next } = await holding(pronghorn.createServer, tls);
    const session = () =>
      http2.connect(`https://127.0.0.1:${port}`, {
        rejectUnauthorized: false,
        servername: 'localhost',
      });
    const [idle, busy] = [session(), session()];
    const statusOf = (stream) =>
      new Promise((resolve) => stream.on('response', (head) => resolve(head[':status'])).resume());
    const first = idle.request({ ':path': '/' });
    await statusOf(first);
    if (!first.closed) await new Promise((resolve) => first.once('close', resolve));
    const waits = next();
    const stream = busy.request({ ':path': '/held' });
    await waits;
    const codes = [];
    idle.on('goaway', (code) => codes.push(code));
    const ended = new Promise((resolve) => idle.once('close', resolve));
    server.closeIdleConnections();
    await ended;
    assert.deepEqual(codes, [http2.constants.NGHTTP2_NO_ERROR]);
    const status = statusOf(stream);
    held[0].end();
    assert.equal(await status, 200);
    assert.equal(await statusOf(busy.request({ ':path': '/' })), 200);
    const all = new Promise((resolve) => busy.once('close', resolve));
    server.closeAllConnections();
    await all;
    server.close();
  });

  for (const [name, request] of Object.entries({ 'HTTP/2': overHttp2, 'HTTP/3': overHttp3 })) {
    it(`closeAllConnections aborts running requests, and other clients are served: ${name}`, async () => {
      const { server, held, port, next } = await holding(pronghorn.createServer, tls);
      const waits = next();
      const answer = request(port, { path: '/held' });
      await waits;
      const left = happening();
      held[0].on('close', left.happen);
      server.closeAllConnections();
      assert.notEqual((await answer).status, 200);
      await left.promise;
      assert.equal(server.listening, true);
      assert.equal((await request(port)).status, 200);
      server.close();
      server.closeAllConnections();
    });
  }

  it('a handler may close its own connection', async () => {
    const server = pronghorn.createServer({}, (request, response) => {
      server.closeAllConnections();
      response.end('hello');
    });
    const port = await listen(server);
    const connection = await connect(port, '/closes');
    await connection.closed;
    server.close();
  });
});

describe('servers that listen again', () => {
  /**
   * Returns the events of a server that is closed while a request is open, and listens again before
   * the response.
   */
  async function outcome(createServer, options, request) {
    const { server, held, port, next } = await holding(createServer, options);
    const told = [];
    server.on('close', () => told.push('close'));
    const waits = next();
    const answer = request(port, '/held');
    await waits;
    server.close((error) => told.push(`called back ${error?.code}`));
    told.push(server.listening);
    const again = await listen(server);
    told.push(server.listening, server.address().port === again);
    assert.throws(() => server.listen(0), { code: 'ERR_SERVER_ALREADY_LISTEN' });
    told.push(await request(again, '/'));
    held[0].end('late');
    told.push(await answer);
    for (let rest = 0; rest < 20; rest++) await turn();
    told.push(server.listening);
    const closed = new Promise((resolve) => server.once('close', resolve));
    server.close((error) => told.push(`called back again ${error?.code}`));
    server.closeAllConnections();
    await closed;
    await turn();
    return told;
  }

  const clear = async (port, path) => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      headers: { connection: 'close' },
    });
    return [response.status, await response.text()];
  };

  it('do so while open connections drain, as in node:http', async () => {
    assert.deepEqual(
      await outcome(pronghorn.createServer, {}, clear),
      await outcome(http.createServer, {}, clear),
    );
  });

  for (const [name, request] of Object.entries({ 'HTTP/2': overHttp2, 'HTTP/3': overHttp3 })) {
    it(`do so while open connections drain: ${name}`, async () => {
      const over = async (port, path) => {
        const { status, body } = await request(port, { path });
        return [status, String(body)];
      };
      assert.deepEqual(
        await outcome(pronghorn.createServer, tls, over),
        await outcome(http.createServer, {}, clear),
      );
    });
  }
});

describe('servers that are closed permanently', () => {
  v8.setFlagsFromString('--expose-gc');
  const collect = vm.runInNewContext('gc');

  /**
   * Creates `count` servers that listen and are closed, and returns weak references to them.
   */
  async function closed(count, make) {
    const references = [];
    for (let index = 0; index < count; index++) references.push(new WeakRef(await make()));
    return references;
  }

  const kinds = {
    App: async () => {
      const app = uWS
        .App()
        .get('/', (res) => res.end())
        .ws('/ws', {});
      app.get('/fixed', new uWS.DeclarativeResponse().end('fixed'));
      listening(app);
      await app.close({ timeout: 0 });
      return app;
    },
    'App that has never listened': async () => uWS.App().get('/', (res) => res.end()),
    'App whose port is taken': async () => {
      const taken = net.createServer();
      await new Promise((resolve) => taken.listen(0, '127.0.0.1', resolve));
      const app = uWS.App().get('/', (res) => res.end());
      app.listen('127.0.0.1', taken.address().port, 1, (_socket, error) =>
        assert.equal(error.code, 'EADDRINUSE'),
      );
      taken.close();
      return app;
    },
    Server: async () => {
      const app = uWS
        .Server(tls)
        .any('/*', (res) => res.end())
        .wt('/wt', {});
      listening(app);
      await app.close({ timeout: 0 });
      return app;
    },
    'http.Server': async () => {
      const server = pronghorn.createServer(tls, (request, response) => response.end());
      await listen(server);
      server.close();
      await new Promise((resolve) => server.once('close', resolve));
      return server;
    },
  };
  for (const [name, make] of Object.entries(kinds)) {
    it(`are garbage-collected with their native state: ${name}`, async () => {
      const references = await closed(40, make);
      // Reading a weak reference keeps its target until the next turn, and running code may hold a
      // few.
      const left = () => references.filter((reference) => reference.deref() !== undefined).length;
      for (let round = 0; round < 1000 && (round < 10 || left() > 2); round++) {
        await turn();
        collect();
      }
      assert.ok(left() <= 2, `${left()} of 40 are still there`);
    });
  }

  it('release their slots in the native part', () => {
    const code = `
      const uWS = require('.');
      const turn = () => new Promise((resolve) => setImmediate(resolve));
      (async () => {
        for (let count = 0; count < 40; count++) {
          const app = uWS.App().get('/', (res) => res.end());
          app.listen('127.0.0.1', 0, () => {});
          await app.close({ timeout: 0 });
        }
        for (let round = 0; round < 100; round++) {
          gc();
          await turn();
        }
        console.log(Math.max(...Array.from({ length: 40 }, () => uWS.App()._number)));
      })();`;
    const options = { cwd: path.join(__dirname, '..'), encoding: 'utf8', timeout: 100_000 };
    const { stdout, stderr } = spawnSync(
      process.execPath,
      ['--expose-gc', '--eval', code],
      options,
    );
    // Without the release there would be 80.
    assert.ok(Number(stdout) < 60, stdout + stderr);
  });
});
