'use strict';

// A fetch handler over all protocols, alone and under Hono, H3 and srvx.

const assert = require('node:assert/strict');
const { after, before, describe, it } = require('node:test');
const { Hono } = require('hono');
const native = require('../lib/native');
const uWS = require('..');
const { fetchHandler, serve, Response: Light } = require('../lib/fetch');
const { getConnInfo } = require('../lib/fetch/hono');
const srvx = require('../lib/fetch/srvx');
const { listening, released } = require('./support/clients');
const { ways, happening } = require('./support/frameworks');

const text = (answer) => answer.body?.toString() ?? answer.error;
const big = Buffer.alloc(3 << 20, 'pronghorn ');
const NativeResponse = Object.getPrototypeOf(Light);

for (const { name, protocol, options, request } of ways) {
  describe(name, () => {
    const reports = [];
    const on = {};
    const handlers = {
      '/': () => new Response('hello'),
      '/none': () => new Response(null, { status: 204 }),
      '/bytes': async () =>
        new Response(new Uint8Array([104, 105]), { headers: { 'content-type': 'x/y' } }),
      '/native': () => new NativeResponse('made by node', { status: 201, headers: { 'x-a': '1' } }),
      '/json': () => Response.json({ a: 1 }, { status: 202 }),
      '/redirect': () => Response.redirect('https://example.org/there', 303),
      '/headers': () => {
        const response = new Response('text', { headers: [['x-one', '1']] });
        response.headers.append('set-cookie', 'a=1');
        response.headers.append('set-cookie', 'b=2');
        response.headers.set('x-latin', 'z\xfc');
        return response;
      },
      '/cloned': async () => {
        const response = new Response('once more');
        response.headers.set('x-length', String((await response.clone().text()).length));
        return response;
      },
      '/request': async (req, info) => {
        await null;
        const { method, url, headers } = req;
        return Response.json({
          method,
          url: url.replace(/:\d+/, ''),
          test: headers.get('x-test'),
          cookie: headers.get('cookie'),
          none: req.body,
          isRequest: req instanceof Request,
          clone: req.clone().method,
          protocol: info.protocol,
          encrypted: info.encrypted,
          early: info.earlyData,
          address: info.remote.address,
          version: info.incoming.httpVersion,
        });
      },
      '/text': async (req) => new Response(await req.text()),
      '/used': async (req) => {
        await req.text();
        const used = req.bodyUsed;
        return new Response(`${used} ${await req.text().catch((error) => error.name)}`);
      },
      '/form': async (req) => {
        const form = await req.formData();
        return new Response(`${form.get('a')} and ${form.get('b')}`);
      },
      '/late': async (req) => {
        await new Promise((resolve) => setImmediate(resolve));
        return Response.json({ size: (await req.arrayBuffer()).byteLength });
      },
      '/echo': (req) => new Response(req.body),
      '/copy': (req) => new Response(new Request(req).body),
      '/upload': async (req) => {
        // Reads a piece, and checks what arrives while the stream is not being read.
        const reader = req.body.getReader();
        let size = 0;
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          size += value.byteLength;
          await new Promise((resolve) => setImmediate(resolve));
        }
        return new Response(String(size));
      },
      '/reads-on': (req) => {
        req.text().then(
          (whole) => on.read.happen(whole.length),
          (error) => on.read.happen(error.name),
        );
        return new Response('soon');
      },
      '/streams-on': (req) => {
        new Response(req.body).text().then(
          (whole) => on.read.happen(whole.length),
          (error) => on.read.happen(error.name),
        );
        return new Response('soon');
      },
      '/streams-later': (req) => {
        const { body } = req;
        setTimeout(
          () => new Response(body).text().catch((error) => on.read.happen(error.message)),
          20,
        );
        return new Response('soon');
      },
      '/unread': (req) => new Response(`unread ${req.body !== null}`),
      '/stream': () => {
        let pulled = 0;
        const body = new ReadableStream({
          async pull(controller) {
            await new Promise((resolve) => setImmediate(resolve));
            controller.enqueue(Buffer.from(`piece ${pulled++} `));
            if (pulled === 3) controller.close();
          },
        });
        return new Response(body, { headers: { 'content-type': 'text/plain' } });
      },
      '/endless': (req) => {
        on.pulls = 0;
        on.signal = req.signal;
        const body = new ReadableStream(
          {
            pull(controller) {
              on.pulls++;
              controller.enqueue(big.subarray(0, 65536));
            },
            cancel: (reason) => on.cancelled.happen(reason),
          },
          { highWaterMark: 0 },
        );
        return new Response(body);
      },
      '/wait': async (req) => {
        on.waiting.happen();
        await new Promise((resolve) => req.signal.addEventListener('abort', resolve));
        on.aborted.happen(req.signal.reason);
        throw req.signal.reason;
      },
      '/throw': () => {
        throw new Error('thrown');
      },
      '/reject': async () => {
        await null;
        throw new Error('rejected');
      },
      '/nothing': () => undefined,
      '/broken': () =>
        new Response(
          new ReadableStream({
            start: (controller) => controller.enqueue(Buffer.from('half')),
            pull: async (controller) => {
              await new Promise((resolve) => setImmediate(resolve));
              controller.error(new Error('broken'));
            },
          }),
        ),
    };
    let server;
    let port;
    before(async () => {
      server = serve({
        ...options,
        port: 0,
        hostname: '127.0.0.1',
        serverOptions: { onError: (error) => reports.push(error.message) },
        fetch: (req, info) => handlers[new URL(req.url).pathname](req, info),
      });
      await new Promise((resolve) => server.once('listening', resolve));
      port = server.address().port;
    });
    after(() => server.close());
    const get = (path, more) => request(port, { path, ...more });

    it('responds with a string and its content type', async () => {
      const answer = await get('/');
      assert.deepEqual([answer.status, text(answer)], [200, 'hello']);
      assert.equal(answer.fields['content-type'], 'text/plain;charset=UTF-8');
      assert.equal(answer.raw['content-length'], '5');
    });

    it('responds with each body type', async () => {
      const none = await get('/none');
      assert.deepEqual([none.status, none.body.length], [204, 0]);
      const bytes = await get('/bytes');
      assert.deepEqual([text(bytes), bytes.fields['content-type']], ['hi', 'x/y']);
      const made = await get('/native');
      assert.deepEqual([made.status, text(made), made.fields['x-a']], [201, 'made by node', '1']);
      // In one piece, because the body was available.
      assert.equal(made.raw['content-length'], '12');
      const json = await get('/json');
      assert.deepEqual(
        [json.status, text(json), json.fields['content-type']],
        [202, '{"a":1}', 'application/json'],
      );
      const redirect = await get('/redirect');
      assert.deepEqual(
        [redirect.status, redirect.fields.location],
        [303, 'https://example.org/there'],
      );
      assert.equal(text(await get('/stream')), 'piece 0 piece 1 piece 2 ');
    });

    it("sends the response's headers", async () => {
      const { fields } = await get('/headers');
      assert.equal(fields['x-one'], '1');
      assert.match(fields['set-cookie'], /a=1.*b=2/);
      assert.equal(fields['x-latin'], 'z\xfc');
      assert.equal((await get('/cloned')).fields['x-length'], '9');
    });

    it('answers HEAD without a body', async () => {
      const answer = await get('/', { method: 'HEAD' });
      assert.deepEqual(
        [answer.status, answer.body.length, answer.raw['content-length']],
        [200, 0, '5'],
      );
      assert.equal((await get('/stream', { method: 'HEAD' })).body.length, 0);
    });

    it('exposes the request and its connection', async () => {
      const answer = await get('/request?a=1&b=%20', {
        headers: { 'x-test': 'yes', cookie: 'a=1' },
      });
      const scheme = Object.keys(options).length > 0 ? 'https' : 'http';
      assert.deepEqual(JSON.parse(text(answer)), {
        method: 'GET',
        url: `${scheme}://localhost/request?a=1&b=%20`,
        test: 'yes',
        cookie: 'a=1',
        none: null,
        isRequest: true,
        clone: 'GET',
        protocol,
        encrypted: scheme === 'https',
        early: false,
        address: '127.0.0.1',
        version: { 'http/1.1': '1.1', h2: '2.0', h3: '3.0' }[protocol],
      });
    });

    it('reads the request body', async () => {
      const post = (path, body, more) => get(path, { method: 'POST', body, ...more });
      assert.equal(text(await post('/text', '\ufeffgr\xfc\xdfe')), 'gr\xfc\xdfe');
      assert.equal(text(await post('/used', 'x')), 'true TypeError');
      assert.equal(text(await post('/late', big)), `{"size":${big.length}}`);
      assert.equal(text(await post('/unread', 'x')), 'unread true');
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      assert.equal(text(await post('/form', 'a=1&b=%32', { headers })), '1 and 2');
      for (const path of ['/echo', '/copy'])
        assert.ok((await post(path, big, { pieces: 20 })).body.equals(big), path);
      assert.equal(text(await post('/upload', big, { pieces: 20 })), String(big.length));
    });

    it('keeps reading a body after the response if a reader has started', async () => {
      const late = big.subarray(0, 100_000);
      const post = async (path, more) => {
        on.read = happening();
        const answer = await request(port, { path, method: 'POST', body: 'first', ...more });
        assert.equal(answer.status, 200);
        return on.read.promise;
      };
      assert.equal(await post('/reads-on', { late }), 100_005);
      assert.equal(
        await post('/reads-on', { unfinished: true, abort: 'connection' }),
        'AbortError',
      );
      assert.equal(await post('/streams-on', { late }), 100_005);
      assert.equal(
        await post('/streams-on', { unfinished: true, abort: 'connection' }),
        'AbortError',
      );
      assert.match(
        await post('/streams-later'),
        /sent before the body of the request had been read/,
      );
    });

    it('reads no more of a stream than the client does, and cancels it when the client disconnects', async () => {
      on.cancelled = happening();
      await get('/endless', { abort: 'head' });
      assert.equal((await on.cancelled.promise).name, 'AbortError');
      assert.ok(on.signal.aborted);
      // Buffers on the way, the kernel's included.
      assert.ok(on.pulls < 400, `${on.pulls} pieces were made`);
    });

    it('aborts the signal when the client disconnects', async () => {
      [on.waiting, on.aborted] = [happening(), happening()];
      const before = reports.length;
      // A body that does not end keeps the request open where an early end would say it is all.
      get('/wait', { method: 'POST', body: 'x', abort: 'now' });
      await on.waiting.promise;
      assert.equal((await on.aborted.promise).name, 'AbortError');
      assert.equal(reports.length, before, 'nobody is told of what the handler makes of it');
    });

    it('responds with 500 for a failing handler, and reports the error', async () => {
      for (const [path, message] of [
        ['/throw', 'thrown'],
        ['/reject', 'rejected'],
        ['/nothing', 'the fetch handler returned undefined'],
      ]) {
        assert.equal((await get(path)).status, 500);
        assert.match(reports.at(-1), new RegExp(`^${message}`));
      }
      const broken = await get('/broken');
      assert.equal(broken.status, 200);
      assert.ok(broken.error, 'the client does not take it for complete');
      assert.equal(reports.at(-1), 'broken');
    });

    it('runs Hono', async () => {
      const app = new Hono();
      app.use(async (c, next) => {
        await next();
        c.header('x-after', 'yes');
      });
      app.get('/users/:id', (c) =>
        c.json({ id: c.req.param('id'), by: getConnInfo(c).remote.address, over: c.env.protocol }),
      );
      app.post('/json', async (c) => c.json({ got: await c.req.json() }));
      app.onError((error, c) => c.text(`caught ${error.message}`, 500));
      app.get('/fail', () => {
        throw new Error('it');
      });
      const hono = serve({ ...options, fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
      const { port: own } = hono.address();
      const user = await request(own, { path: '/users/7' });
      assert.deepEqual(JSON.parse(text(user)), { id: '7', by: '127.0.0.1', over: protocol });
      assert.equal(user.fields['x-after'], 'yes');
      const headers = { 'content-type': 'application/json' };
      const json = await request(own, {
        path: '/json',
        method: 'POST',
        body: '{"a":[1]}',
        headers,
      });
      assert.equal(text(json), '{"got":{"a":[1]}}');
      assert.equal(text(await request(own, { path: '/fail' })), 'caught it');
      assert.equal((await request(own, { path: '/none' })).status, 404);
      await hono.close();
    });

    it('runs H3 and the features of srvx', async () => {
      const { H3 } = await import('h3');
      const seen = [];
      const app = new H3();
      app.get('/users/:id', (event) => ({
        id: event.context.params.id,
        ip: event.req.ip,
        runtime: event.req.runtime.name,
      }));
      app.post('/text', async (event) => {
        event.waitUntil(Promise.resolve().then(() => seen.push('after')));
        return event.req.text();
      });
      app.get('/stream', () => new Response(new Blob(['from a blob']).stream()));
      const { key_file_name: key, cert_file_name: cert } = options;
      const server = srvx.serve({
        fetch: app.fetch,
        middleware: [
          async (req, next) => {
            const response = await next();
            seen.push(new URL(req.url).pathname);
            return response;
          },
        ],
        error: (error) => new Response(error.message, { status: 503 }),
        port: 0,
        hostname: '127.0.0.1',
        ...(key === undefined ? {} : { tls: { key, cert } }),
        silent: true,
        gracefulShutdown: false,
      });
      await server.ready();
      const { port: own } = new URL(server.url);
      const user = await request(Number(own), { path: '/users/7' });
      assert.deepEqual(JSON.parse(text(user)), { id: '7', ip: '127.0.0.1', runtime: 'pronghorn' });
      assert.equal(
        text(await request(Number(own), { path: '/text', method: 'POST', body: 'sent' })),
        'sent',
      );
      assert.equal(text(await request(Number(own), { path: '/stream' })), 'from a blob');
      assert.equal((await request(Number(own), { path: '/none' })).status, 404);
      await server.close();
      assert.deepEqual(seen, ['/users/7', 'after', '/text', '/stream', '/none']);
      assert.equal(server.url, undefined);
    });
  });
}

describe('the fetch handler', () => {
  it('serves among the routes of an application', async () => {
    const app = uWS
      .App()
      .get('/raw', (res) => res.end('raw'))
      .any(
        '/*',
        fetchHandler(
          () => {
            throw new Error('oh');
          },
          { onError: (error) => new Response(error.message, { status: 418 }) },
        ),
      );
    const port = listening(app);
    assert.equal(text(await ways[0].request(port, { path: '/raw' })), 'raw');
    const answer = await ways[0].request(port, { path: '/' });
    assert.deepEqual([answer.status, text(answer)], [418, 'oh']);
    app.close();
  });

  it('normalizes URLs as the URL standard defines', async () => {
    const seen = [];
    const server = serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch: (req) => {
        seen.push(req.url);
        return new Response(null);
      },
    });
    const cases = [
      ['/a/../b', 'EXAMPLE.org'],
      ['/a/%2e%2E/b?x=/../', 'example.org:80'],
      ['/a|b"c', 'example.org'],
      ["/?it's", 'example.org:8080'],
      ['/plain/a.b/..c?q=1&r=%zz', 'a-b.example'],
      ['/', '0x7f.1'],
      ['/', '127.0.0.1:81'],
      ['/', '[::1]:81'],
      ['/', '1.0x1f'],
      ['/', 'xn--nxasmq6b'],
      ['/', 'web1.a1'],
      ['//double//', 'x'],
    ];
    for (const [path, host] of cases) await ways[0].request(server.address().port, { path, host });
    assert.deepEqual(
      seen,
      cases.map(([path, host]) => new URL(`http://${host}${path}`).href),
    );
    await ways[0].request(server.address().port, { path: '/x', host: '1.2.3.999' });
    assert.equal(seen.at(-1), 'http://host.invalid/x');
    await server.close();
  });

  it('has responses that are instances of the global Response', async () => {
    const light = new Light('text', { status: 201, headers: { a: 'b' } });
    assert.ok(
      light instanceof NativeResponse &&
        light instanceof Response &&
        new NativeResponse() instanceof Light,
    );
    assert.deepEqual(
      [light.status, light.ok, light.bodyUsed, light.type],
      [201, true, false, 'default'],
    );
    assert.equal(await light.text(), 'text');
    assert.ok(light.bodyUsed);
    assert.throws(() => new Light('x', { status: 99 }), RangeError);
    assert.throws(() => new Light('x', { status: 204 }), TypeError);
    // Later changes of the headers do not affect the response.
    const headers = new Headers({ a: '1' });
    const early = new Light('x', { headers });
    headers.set('a', '2');
    assert.equal(early.headers.get('a'), '1');
    assert.deepEqual(await new Light(new URLSearchParams('a=1')).text(), 'a=1');
  });

  it('rejects invalid input', () => {
    assert.throws(() => serve({ port: 0 }), /fetch/);
    assert.throws(() => serve({ fetch: () => {}, port: 0, kye: 'x' }), /did you mean "key"/);
    assert.throws(() => serve({ fetch: () => {}, websocket: {} }), /WebSocket routes/);
    assert.throws(() => srvx.serve({ fetch: () => {}, trustProxy: true }), /trustProxy/);
  });

  it('leaves no requests behind', () => released(native.openExchanges));
});
