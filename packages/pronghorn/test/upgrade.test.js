'use strict';

// The event `upgrade` of `pronghorn/http`: the same programs compared with node:http over HTTP/1.1,
// and over HTTP/2 and HTTP/3, where only the client notices the other protocol.

const assert = require('node:assert/strict');
const { AsyncLocalStorage } = require('node:async_hooks');
const { once } = require('node:events');
const http = require('node:http');
const http2 = require('node:http2');
const net = require('node:net');
const nodeTls = require('node:tls');
const { after, before, describe, it } = require('node:test');
const { setImmediate: turn } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');
const ws = require('ws');
const native = require('../lib/native');
const pronghorn = require('../lib/http');
const { serve } = require('../lib/fetch');
const { HeadReader, HEAD_BYTES, HEAD_LINES } = require('../lib/http/response-parser');
const { ways, happening } = require('./support/frameworks');
const { open } = require('./support/websocket');
const { tls } = require('./support/certificate');

const ASK =
  'GET /chat?a=b HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: other\r\nX-One: 1\r\n\r\n';
const GRANT =
  'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\nX-Two: 2\r\n\r\n';
const servers = { 'node:http': http.createServer, pronghorn: pronghorn.createServer };

async function listening(server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

/** Waits until `condition()` holds, a turn at a time. */
async function until(condition) {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** Decodes complete chunks. */
function dechunked(text) {
  const [, digits, rest] = /^([0-9a-f]+)\r\n(.*)$/s.exec(text) ?? [];
  const size = Number.parseInt(digits, 16);
  return size > 0 ? rest.slice(0, size) + dechunked(rest.slice(size + 2)) : '';
}

/** Sends `sent` over TCP. Returns the response, and the compared parts of its head. */
async function exchange(port, sent, then = () => {}) {
  const client = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  let received = '';
  let failed = false;
  client.setEncoding('latin1').on('data', (chunk) => {
    received += chunk;
    then(client, received);
  });
  client.on('error', () => (failed = true));
  client.on('end', () => client.end());
  client.write(sent);
  await new Promise((resolve) => client.on('close', resolve));
  const [, status, fields = '', content] =
    /^HTTP\/1\.[01] (\d+)[^\r]*(\r\n.*?)?\r\n\r\n(.*)$/s.exec(received) ?? [];
  const shown = (name) =>
    new RegExp(`^${name}: (.*)$`, 'im').exec(fields.replaceAll('\r', ''))?.[1];
  const isChunked = shown('transfer-encoding') === 'chunked';
  return {
    status,
    one: shown('x-one'),
    two: shown('x-two'),
    content: isChunked ? dechunked(content) : content,
    failed,
  };
}

/** Runs a program and a client with both servers. Returns what each of them saw. */
async function beside(program, client) {
  const seen = {};
  for (const [name, createServer] of Object.entries(servers)) {
    const told = [];
    const server = createServer((req, res) => res.end(`request ${req.upgrade}`));
    const isOver = program(server, told);
    const port = await listening(server);
    const answer = await client(port, told);
    await isOver;
    seen[name] = { told, answer };
    server.closeAllConnections();
    server.close();
  }
  return seen;
}

/** Asserts that both servers behave the same. Returns the behavior. */
async function same(program, client) {
  const { 'node:http': expected, pronghorn: actual } = await beside(program, client);
  assert.deepEqual(actual, expected);
  return actual;
}

/** Records the events of a socket until it is closed. */
function note(socket, told) {
  for (const event of ['end', 'finish']) socket.on(event, () => told.push(event));
  socket.on('error', (error) => told.push(`error ${error.code}`));
  return new Promise((resolve) =>
    socket.on('close', (hadError) => {
      told.push(`close ${hadError}`);
      resolve();
    }),
  );
}

/** Records all events of the first socket. */
function noting(server, told, then) {
  return new Promise((resolve) =>
    server.on('upgrade', (req, socket, head) => {
      note(socket, told).then(resolve);
      then(socket, req, head);
    }),
  );
}

describe('upgrade over HTTP/1.1, as by node:http', () => {
  it('passes request, socket and head', async () => {
    const { told } = await same(
      (server, told) =>
        noting(server, told, (socket, req, head) => {
          const { method, url, httpVersion, upgrade, headers, complete, aborted } = req;
          told.push({
            method,
            url,
            httpVersion,
            upgrade,
            headers,
            complete,
            aborted,
            raw: req.rawHeaders.length,
          });
          told.push(
            req.socket === socket,
            req.connection === socket,
            Buffer.isBuffer(head),
            head.length,
          );
          const {
            remoteAddress,
            remoteFamily,
            readyState,
            connecting,
            pending,
            destroyed,
            encrypted,
          } = socket;
          told.push({
            remoteAddress,
            remoteFamily,
            readyState,
            connecting,
            pending,
            destroyed,
            tls: Boolean(encrypted),
          });
          told.push(
            socket.localPort === server.address().port,
            typeof socket.remotePort,
            socket._httpMessage ?? null,
            socket.parser,
            socket.readableFlowing,
          );
          told.push(socket.readable, socket.writable, socket.allowHalfOpen, socket.timeout ?? 0);
          told.push(
            [socket._readableState, socket._writableState].every(
              (state) => typeof state === 'object',
            ),
          );
          told.push(
            socket.setNoDelay(true) === socket,
            socket.setKeepAlive(true, 1) === socket,
            socket.ref() === socket,
          );
          told.push(socket.setTimeout(0) === socket, socket.unref() === socket);
          socket.resume();
          socket.end(GRANT);
        }),
      (port) => exchange(port, ASK),
    );
    assert.equal(told[0].upgrade, true);
  });

  it('forwards bytes in order, including those right after the request, and half-closes', async () => {
    const { told, answer } = await same(
      (server, told) =>
        noting(server, told, (socket, _req, head) => {
          let received = '';
          socket.write(`${GRANT}behind the head, `);
          socket.unshift(head);
          socket.on('data', (chunk) => (received += chunk));
          socket.on('end', () => {
            told.push(received, socket.bytesRead >= received.length, socket.readyState);
            socket.write('after the end, ');
            socket.cork();
            socket.write('cork');
            socket.write('ed');
            process.nextTick(() => socket.uncork());
            socket.end(() => told.push('called back'));
          });
        }),
      async (port) => {
        let isSent = false;
        return exchange(port, `${ASK}early`, (client, received) => {
          if (isSent || !received.includes('head, ')) return;
          isSent = true;
          client.end(', late');
        });
      },
    );
    assert.equal(told[1], 'early, late');
    assert.equal(answer.content, 'behind the head, after the end, corked');
  });

  it('accepts a request head in pieces of one byte', async () => {
    const { answer } = await same(
      (server, told) =>
        noting(server, told, (socket) => {
          socket.resume();
          for (const byte of Buffer.from(`${GRANT}content`)) socket.write(Buffer.from([byte]));
          socket.end();
        }),
      (port) => exchange(port, ASK),
    );
    assert.deepEqual(answer, {
      status: '101',
      one: undefined,
      two: '2',
      content: 'content',
      failed: false,
    });
  });

  it('calls all listeners, and the request handler if there is none', async () => {
    await same(
      (server, told) => {
        server.on('upgrade', () => told.push('first'));
        return noting(server, told, (socket) => {
          told.push('second');
          socket.resume().end(GRANT);
        });
      },
      (port) => exchange(port, ASK),
    );
    const { pronghorn: seen } = await beside(
      () => undefined,
      (port) => exchange(port, ASK, (client) => client.end()),
    );
    assert.equal(seen.answer.status, '200');
    assert.match(seen.answer.content, /^request (null|false)/);
  });

  const refusals = {
    'write and destroy': (socket) => {
      socket.write('HTTP/1.1 401 Unauthorized\r\nX-One: no\r\n\r\n');
      socket.destroy();
    },
    'end with a length': (socket) =>
      socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\nConnection: close\r\n\r\nsorry'),
    'ws.abortHandshake': (socket) => {
      socket.once('finish', socket.destroy);
      socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad');
    },
    'content until the end': async (socket) => {
      socket.write('HTTP/1.0 404 Not Found\r\nX-Two: b\r\n\r\none');
      await turn();
      socket.write(', two');
      await turn();
      socket.end(', three');
    },
    'a large content': (socket) => {
      socket.write('HTTP/1.1 503 Busy\r\n\r\n');
      socket.end(Buffer.alloc(1 << 20, 'x'));
    },
    'no content': (socket) => socket.end('HTTP/1.1 204 No Content\r\n\r\n'),
  };
  for (const [name, refuse] of Object.entries(refusals)) {
    it(`rejects: ${name}`, async () => {
      const { answer } = await same(
        (server, told) =>
          noting(server, told, (socket) => {
            socket.on('close', () => {
              // Whether 'end' precedes the end of the connection varies.
              const index = told.indexOf('end');
              if (index !== -1) told.splice(index, 1);
            });
            socket.resume();
            return refuse(socket);
          }),
        (port) => exchange(port, ASK),
      );
      assert.match(answer.status, /^[245]/);
      assert.equal(answer.failed, false);
    });
  }

  it('rejects through a ServerResponse of node:http, as frameworks do, also chunked', async () => {
    for (const respond of [
      (res) => res.writeHead(404, { 'content-type': 'text/plain' }).end('none'),
      (res) => {
        res.writeHead(403, { 'x-one': '1' });
        res.write('in ');
        setImmediate(() => res.end('chunks'));
      },
    ]) {
      const seen = await beside(
        (server) =>
          new Promise((resolve) =>
            server.on('upgrade', (req, socket) => {
              socket.on('close', resolve);
              const response = new http.ServerResponse(req);
              response.assignSocket(socket);
              response.on('finish', () => socket.end());
              respond(response);
            }),
          ),
        (port) => exchange(port, ASK),
      );
      assert.equal(seen.pronghorn.answer.status, seen['node:http'].answer.status);
      assert.equal(seen.pronghorn.answer.one, seen['node:http'].answer.one);
      assert.equal(seen.pronghorn.answer.content, seen['node:http'].answer.content);
    }
  });

  it('ends without a response after destroy or end before one is written', async () => {
    for (const leave of [
      (socket) => socket.destroy(),
      (socket) => socket.end(),
      (socket) => socket.resetAndDestroy(),
    ]) {
      const { pronghorn: seen } = await beside(
        (server, told) => noting(server, told, (socket) => leave(socket.resume())),
        (port) => exchange(port, ASK),
      );
      assert.equal(seen.answer.status, undefined);
      assert.equal(seen.told.at(-1), 'close false');
    }
  });

  it('reports clients that disconnect before and after the response', async () => {
    for (const isGranted of [false, true]) {
      for (const how of ['end', 'resetAndDestroy']) {
        await same(
          (server, told) =>
            noting(server, told, (socket) => {
              socket.resume();
              if (isGranted) socket.write(GRANT);
              socket.on('end', () => socket.end());
              told.reached.happen();
            }),
          async (port, told) => {
            told.reached = happening();
            const client = net.connect(port, '127.0.0.1', () => client.write(ASK));
            if (isGranted) await once(client, 'data');
            else await told.reached.promise;
            delete told.reached;
            client.on('error', () => {}).resume();
            client[how]();
            await once(client, 'close');
          },
        ).catch((error) => {
          // Before the response, a reset cannot be told from an end: the engine reports both alike.
          if (isGranted || how === 'end') throw error;
        });
      }
    }
  });

  it('times out after the configured time', async () => {
    const { told } = await same(
      (server, told) => {
        server.on('timeout', () => told.push('server timeout'));
        return noting(server, told, (socket) => {
          socket.resume().write(GRANT);
          socket.setTimeout(20, () => {
            told.push(`timeout ${socket.timeout}`);
            // A busy machine may let the time pass once more before the connection has ended.
            socket.setTimeout(0);
            socket.end('bye');
          });
        });
      },
      (port) => exchange(port, ASK),
    );
    assert.ok(told.includes('timeout 20'));
  });

  it('applies back-pressure to a fast writer and a fast client', async () => {
    for (const createServer of Object.values(servers)) {
      const reached = happening();
      const server = createServer();
      server.on('upgrade', (_req, socket) => {
        socket.on('error', () => {});
        socket.write(GRANT);
        reached.happen(socket);
      });
      const client = net.connect(await listening(server), '127.0.0.1', () => client.write(ASK));
      await once(client, 'data');
      client.pause();
      const socket = await reached.promise;
      const chunk = Buffer.alloc(64 << 10, 'x');
      let written = 0;
      // Until the kernel's buffers are full too.
      for (;;) {
        if (
          !socket.write(chunk) &&
          (await Promise.race([once(socket, 'drain'), stalled(socket)])) === 'stalled'
        )
          break;
        written += chunk.length;
        assert.ok(written < 64 << 20);
      }
      assert.ok(socket.writableLength > 0 && socket.writableNeedDrain);
      // And in the other direction: the program does not read.
      let sent = 0;
      while (
        client.write(chunk) ||
        (await Promise.race([once(client, 'drain'), stalled(client)])) !== 'stalled'
      ) {
        sent += chunk.length;
        assert.ok(sent < 64 << 20);
      }
      assert.ok(socket.bytesRead < 1 << 20, `${socket.bytesRead}`);
      const drained = once(socket, 'drain');
      client.resume();
      await drained;
      let received = 0;
      const all = happening();
      socket.on('data', (data) => {
        received += data.length;
        if (received >= sent) all.happen();
      });
      await all.promise;
      client.destroy();
      socket.destroy();
      if (!socket.closed) await new Promise((resolve) => socket.on('close', resolve));
      server.close();
    }
  });
});

/** Resolves when no written bytes have been sent for a while. */
async function stalled(stream) {
  for (let rest = 0, last = stream.writableLength; rest < 20; rest++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (stream.writableLength !== last) [rest, last] = [0, stream.writableLength];
  }
  return 'stalled';
}

describe('bytes written as an upgrade response', () => {
  /** Returns the client's response and the program's events, for a program that writes `pieces`. */
  async function written(...pieces) {
    const told = [];
    const reports = [];
    const server = pronghorn.createServer({ onError: (error) => reports.push(error.message) });
    const isOver = noting(server, told, async (socket) => {
      socket.on('error', (error) => told.push(error.message));
      for (const piece of pieces) {
        if (piece === 'end') socket.end();
        else socket.write(piece);
        await turn();
      }
    });
    const answer = await exchange(await listening(server), ASK);
    await isOver;
    server.close();
    return { answer, told, reports };
  }

  const ok = 'HTTP/1.1 200 OK\r\n';
  const malformed = {
    'no status line': ['hello\r\n\r\n'],
    'a version that is none': ['HTTP/2 200 OK\r\n\r\n'],
    'a status of two digits': ['HTTP/1.1 20 OK\r\n\r\n'],
    'a bare LF': ['HTTP/1.1 200 OK\nx: y\n\n'],
    'a lone CR in a value': [`${ok}x: a\rb: c\r\n\r\n`],
    'a zero': [`${ok}x: a\0b\r\n\r\n`],
    'a folded line': [`${ok}x: a\r\n b: c\r\n\r\n`],
    'a name with a space': [`${ok}x : a\r\n\r\n`],
    'a line without a colon': [`${ok}x\r\n\r\n`],
    'two lengths': [`${ok}content-length: 1\r\ncontent-length: 2\r\n\r\na`],
    'a length that is no number': [`${ok}content-length: +1\r\n\r\na`],
    'a length and chunks': [
      `${ok}content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n`,
    ],
    'another coding': [`${ok}transfer-encoding: gzip, chunked\r\n\r\n`],
    'no end': [ok, 'end'],
    'a short content': [`${ok}content-length: 5\r\n\r\nabc`, 'end'],
    'a chunk without a size': [`${ok}transfer-encoding: chunked\r\n\r\n`, 'xyz\r\n'],
    'a chunk that is longer than it says': [
      `${ok}transfer-encoding: chunked\r\n\r\n1\r\n`,
      'abc\r\n0\r\n\r\n',
    ],
    'another protocol': ['HTTP/1.1 101 Switching Protocols\r\nUpgrade: third\r\n\r\n'],
    'too many lines': [`${ok}${'x: y\r\n'.repeat(10_000)}\r\n`],
    'a head without an end': [
      ok,
      ...Array.from({ length: 40 }, () => `x: ${'y'.repeat(4096)}\r\n`),
    ],
  };
  for (const [name, pieces] of Object.entries(malformed)) {
    it(`are rejected and end the connection: ${name}`, async () => {
      const { answer, told } = await written(...pieces);
      assert.ok(told.includes('error ERR_PRONGHORN_INVALID_RESPONSE'), told.join());
      assert.ok(
        told.some((text) =>
          /^invalid HTTP\/1\.1 response written to the socket of an upgrade: /.test(text),
        ),
      );
      assert.ok(told.includes('close true'));
      // Malformed heads are not sent, and a truncated body is not a complete response.
      assert.ok(
        answer.status === undefined || answer.failed || answer.content.length < 5,
        JSON.stringify(answer),
      );
    });
  }

  it('are accepted in pieces of one byte, with interim responses and chunks', async () => {
    const text =
      'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nX-One:  spaces \r\nTransfer-Encoding: chunked\r\n\r\n' +
      '5;ext=1\r\nhello\r\n1\r\n,\r\n6\r\n world\r\n0\r\nx-trailer: 1\r\n\r\n';
    const { answer } = await written(...text);
    assert.equal(answer.status, '103');
    assert.match(answer.content, /^HTTP\/1\.1 404/);
    assert.match(answer.content, /x-one: spaces\r\n/);
    assert.match(
      answer.content.replaceAll(/\r\n[0-9a-f]+\r\n/g, ''),
      /hello, world|hello,.* world/s,
    );
    assert.doesNotMatch(answer.content, /x-trailer/);
  });

  it('end with the response body: bytes written after it are dropped', async () => {
    const { answer } = await written(
      `${ok}content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nsmuggled`,
      'more',
      'end',
    );
    assert.equal(answer.content, 'ok');
  });

  it('are limited in head size and number of field lines', () => {
    const reader = new HeadReader();
    assert.throws(() => reader.add(Buffer.alloc(HEAD_BYTES + 1, 'x')), /more than 65536 bytes/);
    const lines = new HeadReader();
    assert.equal(lines.add(Buffer.from(`${ok}${'x: y\r\n'.repeat(HEAD_LINES)}`)), undefined);
    assert.throws(() => lines.add(Buffer.from('x: y\r\n')), /more than 1000 field lines/);
  });

  it('become 500 if a listener throws before the response, and end the socket if it throws after', async () => {
    for (const [before, status] of [
      ['', '500'],
      [GRANT, '101'],
      ['HTTP/1.1 404 Not Found\r\n\r\n', '500'],
      ['HTTP/1.1 40', '500'],
    ]) {
      const reports = [];
      const server = pronghorn.createServer({ onError: (error) => reports.push(error.message) });
      const told = [];
      const isOver = noting(server, told, (socket) => {
        socket.write(before);
        throw new Error('meant');
      });
      const answer = await exchange(await listening(server), ASK, (client) => client.end());
      await isOver;
      assert.deepEqual([answer.status, reports], [status, ['meant']]);
      server.close();
    }
  });

  it('report errors thrown by socket listeners and end that socket only', async () => {
    const reports = [];
    const server = pronghorn.createServer({
      onError: (error, where) => reports.push(`${error.message} ${where}`),
    });
    const told = [];
    const isOver = noting(server, told, (socket) => {
      socket.write(GRANT);
      socket.on('data', () => {
        throw new Error('meant');
      });
    });
    const answer = await exchange(await listening(server), `${ASK}data`);
    await isOver;
    assert.equal(answer.status, '101');
    assert.deepEqual(reports, ['meant upgrade /chat?a=b']);
    server.close();
  });
});

// ---- over all protocols
// ---------------------------------------------------------------------------------------------------------

const protocols = [
  { name: 'HTTP/1.1 in clear text', options: {}, target: { protocol: 'http/1.1', secure: false } },
  { name: 'HTTP/1.1', options: tls, target: { protocol: 'http/1.1', secure: true } },
  { name: 'HTTP/2', options: tls, target: { protocol: 'h2', secure: true } },
  { name: 'HTTP/3', options: tls, target: { protocol: 'h3', secure: true } },
];

for (const { name, options, target } of protocols) {
  describe(`ws over ${name}`, () => {
    let server, port, wss;
    const seen = {};
    const storage = new AsyncLocalStorage();

    before(async () => {
      server = pronghorn.createServer(options, (req, res) => res.end('plain'));
      wss = new ws.WebSocketServer({
        noServer: true,
        perMessageDeflate: true,
        maxPayload: 8 << 20,
      });
      server.on('upgrade', (req, socket, head) => {
        storage.enterWith(req.url);
        const { pathname, searchParams } = new URL(req.url, 'http://localhost');
        if (pathname === '/refused') {
          socket.write('HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nX-One: 1\r\n\r\n');
          socket.destroy();
          return;
        }
        if (pathname === '/slow') {
          setTimeout(
            () => wss.handleUpgrade(req, socket, head, (client) => client.send(storage.getStore())),
            5,
          );
          return;
        }
        if (pathname === '/never') {
          socket.on('close', () => seen.never.happen());
          socket.resume();
          return;
        }
        wss.handleUpgrade(req, socket, head, (client) =>
          wss.emit('connection', client, req, searchParams),
        );
      });
      wss.on('connection', (client, req) => {
        const { socket } = req;
        seen.socket = socket;
        client.on('message', (data, isBinary) => {
          if (String(data) === 'context') client.send(storage.getStore() ?? 'nothing');
          else if (String(data) === 'about') {
            const { method, url, httpVersion, headers } = req;
            const { remoteAddress, encrypted, alpnProtocol } = socket;
            const named = { connection: headers.connection, upgrade: headers.upgrade };
            const key = Buffer.from(headers['sec-websocket-key'], 'base64').length;
            client.send(
              JSON.stringify({
                method,
                url,
                httpVersion,
                ...named,
                key,
                remoteAddress,
                encrypted,
                alpnProtocol,
              }),
            );
          } else if (String(data) === 'bye') client.close(4001, 'as asked');
          else if (String(data) === 'terminate') client.terminate();
          else client.send(data, { binary: isBinary });
        });
        client.on('close', (code, reason) => seen.closed?.happen([code, String(reason)]));
      });
      port = await listening(server);
    });
    after(() => {
      server.close();
      server.closeAllConnections();
    });

    it('runs unmodified', async () => {
      const client = await open(port, target, { path: '/echo?q=1' });
      assert.equal(client.status, target.protocol === 'http/1.1' ? 101 : 200);
      assert.equal('sec-websocket-accept' in client.fields, target.protocol === 'http/1.1');
      assert.equal(await client.command({ text: 'hello' }).text(), 'hello');
      const about = JSON.parse(await client.command({ text: 'about' }).text());
      assert.deepEqual(about, {
        method: 'GET',
        url: '/echo?q=1',
        httpVersion: { 'http/1.1': '1.1', h2: '2.0', h3: '3.0' }[target.protocol],
        connection: 'Upgrade',
        upgrade: 'websocket',
        key: 16,
        remoteAddress: '127.0.0.1',
        encrypted: target.secure,
        alpnProtocol: target.secure ? target.protocol : false,
      });
      const big = Buffer.alloc(1 << 19, 'pronghorn ');
      const answer = await client.command({ binary: big.toString('base64') }).next();
      assert.ok(answer.message?.equals(big));
      seen.closed = happening();
      client.command({ text: 'bye' });
      assert.deepEqual(await client.next(), { closed: 4001, reason: 'as asked' });
      assert.deepEqual(await seen.closed.promise, [4001, 'as asked']);
      await until(() => seen.socket.destroyed);
    });

    it('compresses messages where both sides support it', async () => {
      const client = await open(port, target, { deflate: true });
      const event = await client.command({ text: 'a'.repeat(5000) }).next();
      assert.deepEqual([event.message.length, event.compressed], [5000, true]);
      seen.closed = happening();
      client.command({ close: [1000, 'done'] });
      assert.deepEqual(await seen.closed.promise, [1000, 'done']);
    });

    it('rejects with the written status', async () => {
      const client = await open(port, target, { path: '/refused' });
      assert.deepEqual(
        [client.status, client.fields['x-one'], client.fields['www-authenticate']],
        [401, '1', 'Basic'],
      );
      const wrong = await open(port, target, { headers: { 'sec-websocket-protocol': 'bad,,' } });
      assert.equal(wrong.status, 400);
    });

    it('keeps the async contexts of clients apart', async () => {
      const clients = await Promise.all(
        Array.from({ length: 5 }, (_, index) => open(port, target, { path: `/context/${index}` })),
      );
      for (let round = 0; round < 3; round++) {
        for (const client of clients) client.command({ text: 'context' });
        const answers = await Promise.all(clients.map((client) => client.text()));
        // `enterWith` affects later events of the socket only in some versions of Node.js; over
        // node:http in none.
        answers.forEach((answer, index) =>
          assert.ok([`/context/${index}`, 'nothing'].includes(answer), answer),
        );
      }
      const slow = await open(port, target, { path: '/slow' });
      assert.equal(await slow.text(), '/slow');
      for (const client of [...clients, slow]) client.command({ drop: true });
    });

    it('reports clients that disconnect without a close, before and after the response', async () => {
      const client = await open(port, target);
      seen.closed = happening();
      client.command({ drop: true });
      assert.equal((await seen.closed.promise)[0], 1006);
      seen.never = happening();
      open(port, target, { path: '/never' }).catch(() => {});
      if (target.protocol === 'http/1.1') {
        const raw = net.connect(port, '127.0.0.1');
        const ask = `GET /never HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n`;
        const stream = target.secure
          ? nodeTls.connect({ socket: raw, rejectUnauthorized: false })
          : raw;
        stream.write(ask);
        while (native.openExchanges() < 2) await new Promise((resolve) => setTimeout(resolve, 1));
        raw.destroy();
        await seen.never.promise;
      }
    });

    it('terminates clients', async () => {
      const client = await open(port, target);
      assert.equal(client.error, undefined);
      client.command({ text: 'terminate' });
      assert.equal((await client.next()).closed, 1006);
    });

    it('leaves no sockets behind', () => until(() => native.openTunnels() === 0));
  });
}

/** An extended CONNECT by node:http2. */
async function connect(port, protocol = 'websocket', fields = {}) {
  const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  await once(session, 'remoteSettings');
  const stream = session.request({
    ':method': 'CONNECT',
    ':protocol': protocol,
    ':path': '/raw',
    ...fields,
  });
  stream.on('close', () => session.close()).on('error', () => {});
  return stream;
}

describe('extended CONNECT by node:http2', () => {
  let server, port;
  const sockets = [];
  before(async () => {
    server = pronghorn.createServer(tls).on('upgrade', (req, socket) => {
      sockets.push(socket);
      assert.deepEqual(
        [req.method, req.headers.upgrade],
        ['GET', req.headers['x-protocol'] ?? 'websocket'],
      );
      assert.equal('sec-websocket-key' in req.headers, req.headers.upgrade === 'websocket');
      if (req.headers['x-refuse']) {
        socket.end(
          'HTTP/1.1 426 Upgrade Required\r\nUpgrade: third\r\nContent-Length: 2\r\n\r\nno',
        );
        return;
      }
      socket.write(
        'HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\nX-Two: 2\r\nKeep-Alive: 1\r\n\r\n',
      );
      if (req.headers['x-reset']) socket.write('some', () => socket.resetAndDestroy());
      else socket.pipe(socket);
    });
    port = await listening(server);
  });
  after(() => {
    server.close();
    server.closeAllConnections();
  });

  it('is accepted with 200 without connection-specific fields, and carries raw bytes from there on', async () => {
    const stream = await connect(port);
    const [head] = await once(stream, 'response');
    assert.deepEqual(
      [
        head[':status'],
        head['x-two'],
        head['sec-websocket-accept'],
        head.connection,
        head['keep-alive'],
        head.upgrade,
      ],
      [200, '2', undefined, undefined, undefined, undefined],
    );
    const content = Buffer.alloc(2 << 20, 'pronghorn ');
    const chunks = [];
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.end(content);
    await once(stream, 'end');
    assert.ok(Buffer.concat(chunks).equals(content));
  });

  it('is rejected with the written status and body', async () => {
    const stream = await connect(port, 'websocket', { 'x-refuse': '1' });
    const [head] = await once(stream, 'response');
    assert.deepEqual([head[':status'], head.upgrade], [426, undefined]);
    assert.equal(String((await once(stream, 'data'))[0]), 'no');
  });

  it('may use any protocol except WebTransport', async () => {
    const stream = await connect(port, 'connect-udp', { 'x-protocol': 'connect-udp' });
    assert.equal((await once(stream, 'response'))[0][':status'], 200);
    stream.close();
    const warnings = [];
    const onWarning = ({ message }) => warnings.push(message);
    process.on('warning', onWarning);
    for (let round = 0; round < 2; round++) {
      const session = await connect(port, 'webtransport');
      assert.equal((await once(session, 'response'))[0][':status'], 501);
      session.close();
    }
    await turn();
    process.off('warning', onWarning);
    assert.equal(warnings.filter((text) => /WebTransport/.test(text)).length, 1);
  });

  it('ends with the stream, whether server or client resets it', async () => {
    const stream = await connect(port, 'websocket', { 'x-reset': '1' });
    stream.resume();
    await once(stream, 'close');
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
    const other = await connect(port);
    await once(other, 'response');
    const socket = sockets.at(-1);
    const failed = once(socket, 'error');
    other.close(http2.constants.NGHTTP2_CANCEL);
    assert.equal((await failed)[0].code, 'ECONNRESET');
    await until(() => socket.closed);
  });
});

describe('upgraded sockets', () => {
  it('leave nothing behind, however they end', async () => {
    const server = pronghorn.createServer().on('upgrade', (req, socket) => {
      socket.on('error', () => {});
      const [, how] = req.url.split('/');
      if (how !== 'before') socket.write(GRANT);
      if (how === 'destroyed') socket.destroy();
      else if (how === 'reset') socket.resetAndDestroy();
      else if (how === 'ended') socket.end('bye').resume();
      else if (how === 'unread') socket.end('bye');
      else if (how === 'full') socket.write(Buffer.alloc(1 << 20));
      else socket.on('end', () => socket.end()).resume();
    });
    const port = await listening(server);
    const ways = ['before', 'destroyed', 'reset', 'ended', 'unread', 'full', 'left'];
    const run = async (count) => {
      for (let done = 0; done < count; done += 50) {
        await Promise.all(
          Array.from({ length: 50 }, async (_, index) => {
            const how = ways[index % ways.length];
            const client = net.connect(port, '127.0.0.1');
            client.on('error', () => {}).write(`${ASK.replace('/chat', `/${how}`)}early`);
            if (how !== 'before')
              await Promise.race([once(client, 'data'), once(client, 'close')]).catch(() => {});
            else await turn();
            if (how === 'left') client.end();
            else client.destroy();
            if (!client.destroyed) await once(client.resume(), 'close');
          }),
        );
      }
      await until(() => native.openTunnels() === 0 && native.openExchanges() === 0);
    };
    await run(300);
    const closed = once(server, 'close');
    server.close();
    await closed;
  });

  for (const protocol of ['HTTP/1.1', 'HTTP/2']) {
    it(`end although their client reads nothing: ${protocol}`, async () => {
      const server = pronghorn.createServer(protocol === 'HTTP/2' ? tls : undefined);
      const port = await listening(server);
      let session;
      if (protocol === 'HTTP/2') {
        session = http2.connect(`https://127.0.0.1:${port}`, {
          rejectUnauthorized: false,
          servername: 'localhost',
        });
        await once(session, 'remoteSettings');
      }
      const extended = {
        ':method': 'CONNECT',
        ':protocol': 'other',
        ':scheme': 'https',
        ':authority': 'localhost',
      };
      const ways = {
        reset: (socket) => socket.resetAndDestroy(),
        destroyed: (socket) => socket.destroy(),
      };
      const took = {};
      for (const [name, end] of Object.entries(ways)) {
        const asked = once(server, 'upgrade');
        const client =
          session?.request({ ':path': '/', ...extended }) ?? net.connect(port, '127.0.0.1');
        client.on('error', () => {}).pause();
        if (session === undefined) client.write(ASK);
        const [, socket] = await asked;
        socket.on('error', () => {}).write(GRANT);
        // More than the system's buffers and HTTP/2 windows hold.
        socket.write(Buffer.alloc(32 << 20));
        await new Promise((resolve) => setTimeout(resolve, 100));
        const since = Date.now();
        end(socket);
        await until(() => native.openTunnels() === 0);
        took[name] = Date.now() - since;
        client.destroy();
      }
      // A socket that was only destroyed gets some time to send the written data. Its time is compared
      // with that of the other, as a busy machine may take seconds for either.
      assert.ok(took.destroyed > 1000 && took.reset < took.destroyed, JSON.stringify(took));
      session?.destroy();
      server.close();
      server.closeAllConnections();
    });
  }

  it('are awaited by close(), as in node:http, and end with a later closeAllConnections()', async () => {
    for (const [name, createServer] of Object.entries(servers)) {
      const reached = happening();
      const server = createServer().on('upgrade', (_req, socket) => {
        socket.write(GRANT);
        reached.happen(socket);
      });
      const client = net.connect(await listening(server), '127.0.0.1', () => client.write(ASK));
      await once(client, 'data');
      let isClosed = false;
      server.close(() => (isClosed = true));
      const socket = await reached.promise;
      socket.write('still open');
      await once(client, 'data');
      assert.equal(isClosed, false);
      const closed = once(server, 'close');
      if (name === 'pronghorn') {
        server.closeAllConnections();
        const [hadError] = await once(socket, 'close');
        assert.equal(hadError, false);
      } else {
        socket.destroy();
      }
      client.on('error', () => {}).destroy();
      await closed;
      assert.equal(isClosed, true);
    }
  });

  it('are bounded by the limit: the next one gets 503', async () => {
    const server = pronghorn.createServer({ limits: { open_tunnels: 1 } });
    const told = [];
    server.on('upgrade', (_req, socket) => {
      const isOver = note(socket, told);
      socket.write(GRANT);
      if (told.over === undefined) told.over = isOver;
      else told.second = isOver;
    });
    const port = await listening(server);
    const client = net.connect(port, '127.0.0.1', () => client.write(ASK));
    await once(client, 'data');
    const answer = await exchange(port, ASK, (second) => second.end());
    assert.equal(answer.status, '503');
    await told.second;
    assert.deepEqual([...told], ['error ECONNRESET', 'close true']);
    client.destroy();
    server.close();
    server.closeAllConnections();
    await told.over;
  });

  it('report their protocol, and CONNECT gets 404', async () => {
    const server = pronghorn.createServer(tls).on('upgrade', (_req, socket) => {
      const { authorized, alpnProtocol, servername } = socket;
      const about = [
        authorized,
        alpnProtocol,
        servername,
        socket.getProtocol(),
        typeof socket.getPeerCertificate(),
      ];
      socket.end(`HTTP/1.1 200 OK\r\n\r\n${about.join()}`);
    });
    const port = await listening(server);
    for (const [sent, expected] of [
      [ASK, /^HTTP\/1\.1 200 .*false,http\/1\.1,localhost,TLSv1\.3,object/s],
      [
        'CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nConnection: close\r\n\r\n',
        /^HTTP\/1\.1 404/,
      ],
    ]) {
      const client = nodeTls.connect({
        port,
        host: '127.0.0.1',
        servername: 'localhost',
        rejectUnauthorized: false,
      });
      let received = '';
      client.on('data', (chunk) => (received += chunk)).write(sent);
      await once(client, 'close');
      assert.match(received, expected);
    }
    server.close();
  });

  it('are matched after the routes of app.ws', async () => {
    const server = pronghorn.createServer().on('upgrade', (_req, socket) => {
      socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
    });
    server.app.ws('/own', { open: (client) => client.send('own') });
    const port = await listening(server);
    const client = new ws.WebSocket(`ws://127.0.0.1:${port}/own`);
    assert.equal(String((await once(client, 'message'))[0]), 'own');
    client.terminate();
    const [error] = await once(new ws.WebSocket(`ws://127.0.0.1:${port}/other`), 'error');
    assert.match(error.message, /404/);
    server.close();
    server.closeAllConnections();
  });

  it('work in worker threads and end with them', async () => {
    const thread = new Worker(
      `const { parentPort } = require('node:worker_threads');
       const { createServer } = require(${JSON.stringify(require.resolve('../lib/http'))});
       const ws = require(${JSON.stringify(require.resolve('ws'))});
       const server = createServer();
       new ws.WebSocketServer({ server }).on('connection', (client) => client.on('message', (data) => client.send(data)));
       server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`,
      { eval: true },
    );
    const [port] = await once(thread, 'message');
    const client = new ws.WebSocket(`ws://127.0.0.1:${port}/`);
    await once(client, 'open');
    client.send('from a thread');
    assert.equal(String((await once(client, 'message'))[0]), 'from a thread');
    const closed = once(client, 'close');
    await thread.terminate();
    assert.equal((await closed)[0], 1006);
  });

  it('cause one warning where they are not supported', async () => {
    const warnings = [];
    const onWarning = ({ name, message }) => warnings.push(`${name}: ${message}`);
    process.on('warning', onWarning);
    for (let round = 0; round < 2; round++) {
      const fetched = serve({
        fetch: () => new Response(),
        port: 0,
        hostname: '127.0.0.1',
        overrideGlobalObjects: false,
      });
      fetched.on('upgrade', () => {});
      fetched.close();
      pronghorn.createServer().on('connect', () => {});
    }
    await turn();
    process.off('warning', onWarning);
    assert.equal(
      warnings.filter((text) =>
        /^PronghornWarning: the server of serve\(\) does not emit 'upgrade'/.test(text),
      ).length,
      1,
    );
    assert.equal(
      warnings.filter((text) =>
        /^PronghornWarning: pronghorn\/http does not emit 'connect'/.test(text),
      ).length,
      1,
    );
  });
});

describe('WebSocketServer of ws with { server }', () => {
  it('runs beside requests, and accepts clients over TLS', async () => {
    for (const options of [{}, tls]) {
      const server = pronghorn.createServer(options, (req, res) => res.end('plain'));
      const wss = new ws.WebSocketServer({ server, path: '/ws' });
      wss.on('connection', (client, req) =>
        client.on('message', (data) => client.send(`${req.url} ${data}`)),
      );
      const port = await listening(server);
      const scheme = options === tls ? 'wss' : 'ws';
      const client = new ws.WebSocket(`${scheme}://127.0.0.1:${port}/ws`, {
        rejectUnauthorized: false,
      });
      await once(client, 'open');
      client.send('hello');
      assert.equal(String((await once(client, 'message'))[0]), '/ws hello');
      const way = ways.find(
        (one) => one.protocol === 'http/1.1' && (one.options === tls) === (options === tls),
      );
      assert.equal(String((await way.request(port)).body), 'plain');
      const [error] = await once(
        new ws.WebSocket(`${scheme}://127.0.0.1:${port}/none`, { rejectUnauthorized: false }),
        'error',
      );
      assert.match(error.message, /400/);
      const closed = once(client, 'close');
      for (const each of wss.clients) each.close(1001, 'over');
      assert.equal((await closed)[0], 1001);
      const ended = once(server, 'close');
      wss.close();
      server.close();
      await ended;
    }
  });
});
