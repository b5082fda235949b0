'use strict';

// pronghorn/http, the server with the API of node:http, alone and under Express, Koa and Fastify,
// over all protocols.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');
const net = require('node:net');
const http = require('node:http');
const http2 = require('node:http2');
const express = require('express');
const fastify = require('fastify');
const Koa = require('koa');
const native = require('../lib/native');
const { createServer } = require('../lib/http');
const { released } = require('./support/clients');
const { ways, happening } = require('./support/frameworks');
const { tls } = require('./support/certificate');

const text = (answer) => answer.body?.toString() ?? answer.error;
const big = Buffer.alloc(1 << 20, 'pronghorn ');

async function listening(server) {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server.address().port;
}

for (const { name, protocol, options, request } of ways) {
  describe(name, () => {
    const on = {};
    const handlers = {
      '/': (req, res) => res.end('hello'),
      '/head': (req, res) => {
        res.setHeader('X-One', '1');
        res.setHeader('set-cookie', ['a=1', 'b=2']);
        res.appendHeader('x-two', ['2']);
        on.head = [res.headersSent, res.getHeader('x-one'), res.hasHeader('x-none')];
        res.writeHead(404, { 'x-three': '3', 'X-One': 'one', connection: 'keep-alive' });
        on.head.push(res.headersSent);
        assert.throws(() => res.setHeader('x', 'y'), { code: 'ERR_HTTP_HEADERS_SENT' });
        res.end('gone');
      },
      '/request': (req, res) => {
        const { socket } = req;
        res.end(
          JSON.stringify({
            method: req.method,
            url: req.url,
            version: req.httpVersion,
            host: req.headers.host,
            test: req.headers['x-test'],
            complete: req.complete,
            remote: socket.remoteAddress,
            encrypted: socket.encrypted,
            port: socket.localPort === res.socket.localPort,
            sameSocket: req.connection === res.socket,
            proto: socket.alpnProtocol,
            servername: socket.servername ?? null,
          }),
        );
      },
      '/events': (req, res) => {
        on.events = [];
        for (const event of ['prefinish', 'finish', 'close'])
          res.on(event, () => on.events.push(`res ${event}`));
        for (const event of ['end', 'close', 'aborted'])
          req.on(event, () => on.events.push(`req ${event}`));
        res.on('close', () => setImmediate(() => on.closed.happen()));
        req.resume();
        res.write('a', () => res.end('b', () => on.events.push('called back')));
      },
      '/echo': (req, res) => req.pipe(res),
      '/pressure': (req, res) => {
        let left = 200;
        on.drains = 0;
        const go = () => {
          while (left > 0) {
            left--;
            if (!res.write(big.subarray(0, 16384))) return res.once('drain', () => go(on.drains++));
          }
          res.end();
        };
        go();
      },
      '/aborted': (req, res) => {
        on.seen = [];
        req.on('aborted', () => on.seen.push('aborted'));
        req.on('error', (error) => on.seen.push(error.code));
        req.on('close', () => on.seen.push('req close'));
        res.on('close', () => {
          on.seen.push('res close', res.writableFinished, res.destroyed);
          setImmediate(() => on.aborted.happen());
        });
        req.resume();
        on.reached.happen();
      },
      '/destroy': (req, res) => {
        res.write('half');
        setImmediate(() => res.destroy());
      },
      '/hints': (req, res) => {
        res.writeEarlyHints({ link: '</style.css>; rel=preload' });
        res.end('hinted');
      },
      '/trailers': (req, res) => {
        res.writeHead(200, { trailer: 'x-sum' });
        res.write('content');
        res.addTrailers({ 'x-sum': '7' });
        res.end();
      },
      '/late': (req, res) => {
        res.end('done');
        assert.equal(res.writableEnded, true);
        res.on('error', (error) => on.late.happen(error.code));
        assert.equal(res.write('more'), false);
      },
      '/reads-on': async (req, res) => {
        res.end('soon');
        let size = 0;
        req.on('error', (error) => on.read.happen(error.code));
        req.on('data', (chunk) => {
          size += chunk.length;
          req.pause();
          setImmediate(() => req.resume());
        });
        req.on('end', () => on.read.happen(size));
      },
      '/early-trailers': (req, res) => {
        res.write('too ');
        res.addTrailers({ 'x-trailer': 'yes' });
        res.end('much');
      },
      '/early': (req, res) => {
        // The request body is not read.
        res.statusCode = 413;
        res.end('too much');
      },
    };
    let server;
    let port;
    before(async () => {
      server = createServer(options, (req, res) => handlers[req.url.split('?')[0]](req, res));
      port = await listening(server);
    });
    after(() => new Promise((resolve) => server.close(resolve)));
    const get = (path, more) => request(port, { path, ...more });

    it('responds with status, fields and body', async () => {
      const answer = await get('/');
      assert.deepEqual(
        [answer.status, text(answer), answer.raw['content-length']],
        [200, 'hello', '5'],
      );
      const head = await get('/', { method: 'HEAD' });
      assert.deepEqual([head.body.length, head.raw['content-length']], [0, '5']);
    });

    it('keeps headers as node:http does', async () => {
      const answer = await get('/head');
      assert.deepEqual([answer.status, text(answer)], [404, 'gone']);
      const { 'x-one': one, 'x-two': two, 'x-three': three } = answer.fields;
      assert.deepEqual([one, two, three], ['one', '2', '3']);
      assert.match(answer.fields['set-cookie'], /a=1.*b=2/);
      assert.deepEqual(on.head, [false, '1', false, true]);
    });

    it('exposes the request', async () => {
      const answer = await get('/request?a=%20b', { headers: { 'x-test': 'yes' } });
      const encrypted = Object.keys(options).length > 0;
      assert.deepEqual(JSON.parse(text(answer)), {
        method: 'GET',
        url: '/request?a=%20b',
        version: { 'http/1.1': '1.1', h2: '2.0', h3: '3.0' }[protocol],
        host: 'localhost',
        test: 'yes',
        complete: true,
        remote: '127.0.0.1',
        encrypted,
        port: true,
        sameSocket: true,
        proto: encrypted ? protocol : false,
        servername: encrypted ? 'localhost' : null,
      });
    });

    it('emits end events in the order of node:http', async () => {
      on.closed = happening();
      assert.equal(text(await get('/events')), 'ab');
      await on.closed.promise;
      const order = (event) => on.events.indexOf(event);
      assert.deepEqual(
        on.events.filter((event) => !event.startsWith('req')),
        ['res prefinish', 'res finish', 'called back', 'res close'].sort(
          (a, b) => order(a) - order(b),
        ),
      );
      assert.ok(
        order('res finish') < order('res close') &&
          order('req end') >= 0 &&
          order('req end') < order('req close'),
      );
      assert.equal(order('req aborted'), -1);
    });

    it('streams in both directions, with back-pressure', async () => {
      assert.ok((await get('/echo', { method: 'POST', body: big, pieces: 20 })).body.equals(big));
      assert.equal((await get('/pressure')).body.length, 200 * 16384);
      assert.ok(on.drains > 0);
      assert.equal((await get('/early', { method: 'POST', body: 'x' })).status, 413);
      assert.equal(text(await get('/early-trailers', { method: 'POST', body: 'x' })), 'too much');
    });

    it('keeps reading the request after the response', async () => {
      const more = { method: 'POST', body: 'first' };
      on.read = happening();
      assert.equal(text(await get('/reads-on', { ...more, late: big })), 'soon');
      assert.equal(await on.read.promise, 5 + big.length);
      on.read = happening();
      await get('/reads-on', { ...more, unfinished: true, abort: 'connection' });
      assert.equal(await on.read.promise, 'ECONNRESET');
    });

    it('reports clients that disconnect', async () => {
      [on.reached, on.aborted] = [happening(), happening()];
      get('/aborted', { method: 'POST', body: 'x', pieces: 1, unfinished: true, abort: 'now' });
      await on.reached.promise;
      await on.aborted.promise;
      assert.ok(
        on.seen.includes('aborted') &&
          on.seen.includes('ECONNRESET') &&
          on.seen.includes('req close'),
        on.seen.join(),
      );
      assert.deepEqual(on.seen.slice(on.seen.indexOf('res close')).slice(0, 3), [
        'res close',
        false,
        true,
      ]);
    });

    it('ends a destroyed response as visibly incomplete', async () =>
      assert.ok((await get('/destroy')).error));

    it('sends early hints and trailers', async () => {
      const hinted = await get('/hints');
      assert.equal(hinted.informational[0].fields.link, '</style.css>; rel=preload');
      assert.equal(text(await get('/trailers')), 'content');
    });

    it('rejects writes after the end', async () => {
      on.late = happening();
      assert.equal(text(await get('/late')), 'done');
      assert.equal(await on.late.promise, 'ERR_STREAM_WRITE_AFTER_END');
    });

    const check = async (own) => {
      const user = await request(own, { path: '/users/7?a=b', headers: { accept: '*/*' } });
      assert.deepEqual(JSON.parse(text(user)), { id: '7', a: 'b', ip: '127.0.0.1' });
      const headers = { 'content-type': 'application/json' };
      const json = await request(own, {
        path: '/json',
        method: 'POST',
        body: '{"a":[1]}',
        headers,
      });
      assert.equal(text(json), '{"got":{"a":[1]}}');
      assert.ok((await request(own, { path: '/stream' })).body.equals(big));
      assert.equal((await request(own, { path: '/none' })).status, 404);
      assert.equal((await request(own, { path: '/fail' })).status, 500);
    };
    const { Readable } = require('node:stream');

    it('runs Express', async () => {
      const app = express();
      app.use(express.json());
      app.get('/users/:id', (req, res) =>
        res.json({ id: req.params.id, a: req.query.a, ip: req.ip }),
      );
      app.post('/json', (req, res) => res.status(200).send({ got: req.body }));
      app.get('/stream', (req, res) =>
        Readable.from([big.subarray(0, 100_000), big.subarray(100_000)]).pipe(res),
      );
      app.get('/fail', async () => {
        throw new Error('it');
      });
      // Without an error handler, Express answers errors itself and prints them.
      app.use((error, req, res, next) => (res.headersSent ? next(error) : res.sendStatus(500)));
      const own = createServer(options, app);
      await check(await listening(own));
      await new Promise((resolve) => own.close(resolve));
    });

    it('runs Koa', async () => {
      const app = new Koa();
      app.silent = true;
      app.use(async (ctx) => {
        if (ctx.path.startsWith('/users/'))
          ctx.body = { id: ctx.path.slice(7), a: ctx.query.a, ip: ctx.ip };
        if (ctx.path === '/json') {
          const chunks = [];
          for await (const chunk of ctx.req) chunks.push(chunk);
          ctx.body = { got: JSON.parse(Buffer.concat(chunks)) };
        }
        if (ctx.path === '/stream')
          ctx.body = Readable.from([big.subarray(0, 100_000), big.subarray(100_000)]);
        if (ctx.path === '/fail') ctx.throw(500, 'it');
      });
      const own = createServer(options, app.callback());
      await check(await listening(own));
      await new Promise((resolve) => own.close(resolve));
    });

    it('runs Fastify', async () => {
      const app = fastify({ serverFactory: (handler) => createServer(options, handler) });
      app.get('/users/:id', async (req) => ({ id: req.params.id, a: req.query.a, ip: req.ip }));
      app.post('/json', async (req) => ({ got: req.body }));
      app.get('/stream', (req, reply) =>
        reply.send(Readable.from([big.subarray(0, 100_000), big.subarray(100_000)])),
      );
      app.get('/fail', async () => {
        throw new Error('it');
      });
      await app.listen({ port: 0, host: '127.0.0.1' });
      await check(app.server.address().port);
      await app.close();
    });
  });
}

describe('pronghorn/http', () => {
  it('passes trailers and leaves 100 Continue to checkContinue listeners', async () => {
    const server = createServer((req, res) => {
      req.resume().on('end', () => res.end(JSON.stringify([req.trailers, req.complete])));
    });
    server.on('checkContinue', (req, res) => {
      if (req.url === '/no') return res.writeHead(417).end();
      res.writeContinue();
      req.resume().on('end', () => res.end('continued'));
    });
    const port = await listening(server);
    const exchange = (lines) =>
      new Promise((resolve) => {
        let all = '';
        const socket = net.connect(port, '127.0.0.1', () => socket.write(lines.join('\r\n')));
        socket.on('data', (data) => {
          all += data;
          if (/100 Continue\r\n\r\n$/.test(all)) socket.write('hello');
        });
        socket.on('close', () => resolve(all));
      });
    const head = (path, ...more) => [
      `POST ${path} HTTP/1.1`,
      'host: x',
      'connection: close',
      ...more,
    ];
    const trailers = await exchange([
      ...head('/', 'transfer-encoding: chunked'),
      '',
      '1',
      'a',
      '0',
      'x-sum: 1',
      '',
      '',
    ]);
    assert.match(trailers, /\[\{"x-sum":"1"\},true\]/);
    const expects = ['content-length: 5', 'expect: 100-continue', '', ''];
    assert.match(await exchange(head('/yes', ...expects)), /^HTTP\/1.1 100 Continue[^]*continued$/);
    assert.match(await exchange(head('/no', ...expects)), /^HTTP\/1.1 417/);
    await new Promise((resolve) => server.close(resolve));
  });

  it('sends trailers over HTTP/2', async () => {
    const server = createServer(tls, (req, res) => {
      res.writeHead(200, { trailer: 'x-sum' });
      res.addTrailers({ 'x-sum': '7' });
      res.end('content');
    });
    const session = http2.connect(`https://127.0.0.1:${await listening(server)}`, {
      rejectUnauthorized: false,
    });
    const stream = session.request({ ':path': '/' });
    const trailers = await new Promise((resolve) => stream.on('trailers', resolve).resume());
    assert.equal(trailers['x-sum'], '7');
    session.close();
    await new Promise((resolve) => server.close(resolve));
  });

  it('counts connections', async () => {
    for (const { name, options, request } of ways) {
      const server = createServer(options, (_req, res) => {
        server.getConnections((error, count) => res.end(JSON.stringify([error, count])));
      });
      assert.equal(text(await request(await listening(server), { path: '/' })), '[null,1]', name);
      await new Promise((resolve) => server.close(resolve));
    }
  });

  it('ends an idle request as node:http does', async () => {
    const play = async (make) => {
      const seen = [];
      const server = make((req, res) => {
        const { socket } = req;
        socket.setTimeout(20);
        socket.on('timeout', () => {
          // A busy machine may let the time pass once more before the connection has ended.
          socket.setTimeout(0);
          seen.push([req.url, socket.destroyed]);
          if (!socket.destroyed) res.end('late');
        });
        if (req.url === '/kept') res.on('timeout', () => seen.push('res'));
      });
      const port = await listening(server);
      const answers = [];
      for (const path of ['/', '/kept']) answers.push(text(await ways[0].request(port, { path })));
      await new Promise((resolve) => server.close(resolve));
      return [seen, answers];
    };
    const seen = [['/', true], 'res', ['/kept', false]];
    for (const make of [http.createServer, createServer]) {
      assert.deepEqual(await play(make), [seen, ['socket hang up', 'late']]);
    }
  });

  it('listens and closes as node:http does', async () => {
    const server = createServer();
    assert.equal(server.address(), null);
    const port = await listening(server);
    assert.deepEqual(server.address(), { address: '127.0.0.1', family: 'IPv4', port });
    assert.throws(() => server.listen(0), { code: 'ERR_SERVER_ALREADY_LISTEN' });
    const second = createServer();
    const error = await new Promise((resolve) =>
      second.listen(port, '127.0.0.1').on('error', resolve),
    );
    assert.deepEqual([error.code, error.syscall, error.port], ['EADDRINUSE', 'listen', port]);
    let isOpen = true;
    // Running requests complete; new connections are refused.
    server.on('request', (req, res) => {
      server.close(() => (isOpen = false));
      assert.equal(server.listening, false);
      res.end('last');
    });
    assert.equal(text(await ways[0].request(port)), 'last');
    while (isOpen) await new Promise((resolve) => setImmediate(resolve));
    const notRunning = await new Promise((resolve) => server.close(resolve));
    assert.equal(notRunning.code, 'ERR_SERVER_NOT_RUNNING');
  });

  it('rejects invalid input', () => {
    assert.throws(() => createServer({ crt: 'x' }), /did you mean "cert"/);
    assert.throws(() => createServer({ cert: 'x' }), /has no key/);
    assert.throws(() => createServer(7), TypeError);
    assert.throws(() => createServer().listen('/tmp/socket'), /takes a port/);
    assert.throws(() => createServer().listen(70_000), { code: 'ERR_SOCKET_BAD_PORT' });
    assert.throws(() => createServer().setSecureContext(tls), /key and cert/);
  });

  it('has its own routes beside those of the framework', async () => {
    const server = createServer((req, res) => res.end('framework'));
    server.app.get('/raw', (res) => res.end('raw'));
    const port = await listening(server);
    assert.equal(text(await ways[0].request(port, { path: '/raw' })), 'raw');
    assert.equal(text(await ways[0].request(port, { path: '/' })), 'framework');
    assert.ok(http.ServerResponse.prototype.write !== undefined);
    await new Promise((resolve) => server.close(resolve));
  });

  it('leaves no requests behind', () => released(native.openExchanges));
});
