'use strict';

// Servers of WebSocket from npm that stand on the event `upgrade`, unchanged over pronghorn and
// over node:http side by side.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const pronghorn = require('../../lib/http');
const { tls } = require('../support/certificate');
const { open } = require('../support/websocket');
const covers = require('./upgrade/covers');

const given = path.join(__dirname, 'upgrade');
let folder, from;

before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'pronghorn-upgrade-'));
  for (const name of fs.readdirSync(given))
    fs.copyFileSync(path.join(given, name), path.join(folder, name));
  fs.copyFileSync(
    path.join(__dirname, '..', '..', '..', '..', '.npmrc'),
    path.join(folder, '.npmrc'),
  );
  execFileSync('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--loglevel=error'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  from = createRequire(path.join(folder, 'package.json'));
});
after(() => fs.rmSync(folder, { recursive: true, force: true }));

async function listening(server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

/** Each takes what makes its server, and returns the port, and what ends it. All echo at /ws. */
const programs = {
  async ws(createServer) {
    const server = createServer((req, res) => res.writeHead(404).end('none'));
    new (from('ws').WebSocketServer)({ server, path: '/ws' }).on('connection', (client) =>
      client.on('message', (data) => client.send(String(data))),
    );
    return { port: await listening(server), server, end: () => {} };
  },
  async 'express-ws'(createServer) {
    const express = from('express');
    const app = express();
    const server = createServer(app);
    from('express-ws')(app, server);
    app.ws('/ws', (client) => client.on('message', (data) => client.send(String(data))));
    return { port: await listening(server), server, end: () => {} };
  },
  async '@fastify/websocket'(createServer) {
    const app = from('fastify')({ serverFactory: (handler) => createServer(handler) });
    await app.register(from('@fastify/websocket'));
    await app.register(async (scope) => {
      scope.get('/ws', { websocket: true }, (client) => {
        client.on('message', (data) => client.send(String(data)));
      });
    });
    await app.listen({ port: 0, host: '127.0.0.1' });
    return { port: app.server.address().port, server: app.server, end: () => app.close() };
  },
  async 'http-proxy'(createServer) {
    const { WebSocketServer } = from('ws');
    const behind = http.createServer((req, res) => res.writeHead(404).end('none'));
    new WebSocketServer({ server: behind, path: '/ws' }).on('connection', (client) =>
      client.on('message', (data) => client.send(String(data))),
    );
    const target = `http://127.0.0.1:${await listening(behind)}`;
    const proxy = from('http-proxy').createProxyServer({ target, ws: true });
    const server = createServer((req, res) => proxy.web(req, res));
    server.on('upgrade', (req, socket, head) =>
      proxy.ws(req, socket, head, {}, () => socket.destroy()),
    );
    return {
      port: await listening(server),
      server,
      end: () => behind.close() && behind.closeAllConnections(),
    };
  },
};

/** What clients get that ask for /none. express-ws grants it and closes the connection. */
const refusals = { ws: 400, '@fastify/websocket': 404, 'http-proxy': 400 };

/** What clients see of a program. */
async function seen(port, connect) {
  const client = await connect(port, '/ws');
  const answers = [];
  for (const text of ['one', 'two', 'x'.repeat(200_000)]) answers.push(await client.ask(text));
  await client.close();
  return { answers, refused: (await connect(port, '/none')).status };
}

function overWs(port, target) {
  const { WebSocket } = from('ws');
  const client = new WebSocket(`ws://127.0.0.1:${port}${target}`);
  return new Promise((resolve) => {
    client.on('open', () =>
      resolve({
        async ask(text) {
          client.send(text);
          return String((await once(client, 'message'))[0]);
        },
        async close() {
          client.close(1000);
          await once(client, 'close');
        },
      }),
    );
    client.on('unexpected-response', (_request, response) => {
      resolve({ status: response.statusCode });
      response.resume();
      client.terminate();
    });
    client.on('error', () => {});
  });
}

const over = (target) => async (port, wanted) => {
  const client = await open(port, target, { path: wanted });
  return {
    status: client.status,
    ask: (text) => client.command({ text }).text(),
    close: () => client.command({ close: [1000, ''] }).until((event) => event.closed !== undefined),
  };
};

it('tries what the page of frameworks says', () => {
  assert.deepEqual(Object.keys(covers).sort(), [...Object.keys(programs), 'socket.io'].sort());
});

for (const [name, program] of Object.entries(programs)) {
  describe(name, () => {
    it('runs over HTTP/1.1 as over node:http', async () => {
      const results = [];
      for (const createServer of [http.createServer, pronghorn.createServer]) {
        const { port, server, end } = await program(createServer);
        results.push(await seen(port, overWs));
        await end();
        server.close();
        server.closeAllConnections();
      }
      assert.deepEqual(results[1], results[0]);
      if (name in refusals) assert.equal(results[1].refused, refusals[name]);
    });

    for (const protocol of ['http/1.1', 'h2', 'h3']) {
      it(`runs over TLS: ${protocol}`, async () => {
        const { port, server, end } = await program((handler) =>
          pronghorn.createServer(tls, handler),
        );
        const result = await seen(port, over({ protocol, secure: true }));
        assert.deepEqual(result.answers, ['one', 'two', 'x'.repeat(200_000)]);
        if (name in refusals) assert.equal(result.refused, refusals[name]);
        await end();
        server.close();
        server.closeAllConnections();
      });
    }
  });
}

describe('Socket.IO', () => {
  for (const [name, createServer] of Object.entries({
    'node:http': http.createServer,
    pronghorn: pronghorn.createServer,
  })) {
    it(`polls, upgrades to WebSocket, and broadcasts, over ${name}`, async () => {
      const { Server } = from('socket.io');
      const { io } = from('socket.io-client');
      const server = createServer((req, res) => res.end('plain'));
      const sockets = new Server(server, { serveClient: false });
      sockets.on('connection', (socket) => {
        socket.on('ask', (data, answer) => answer({ data, transport: socket.conn.transport.name }));
        socket.on('all', (data) => sockets.emit('told', data));
      });
      const port = await listening(server);
      const clients = [{}, { transports: ['websocket'] }, { transports: ['polling'] }].map(
        (options) => io(`http://127.0.0.1:${port}`, { reconnection: false, ...options }),
      );
      await Promise.all(
        clients.map((client) => new Promise((resolve) => client.on('connect', resolve))),
      );
      const [first] = clients;
      if (first.io.engine.transport.name !== 'websocket') {
        await new Promise((resolve) => first.io.engine.once('upgrade', resolve));
      }
      const bytes = Buffer.alloc(100_000, 'b');
      const answers = await Promise.all(clients.map((client) => client.emitWithAck('ask', bytes)));
      assert.deepEqual(
        answers.map(({ data, transport }) => [Buffer.from(data).equals(bytes), transport]),
        [
          [true, 'websocket'],
          [true, 'websocket'],
          [true, 'polling'],
        ],
      );
      const told = clients.map((client) => new Promise((resolve) => client.on('told', resolve)));
      first.emit('all', 'hello');
      assert.deepEqual(await Promise.all(told), ['hello', 'hello', 'hello']);
      for (const client of clients) client.close();
      await new Promise((resolve) => sockets.close(resolve));
    });
  }
});
