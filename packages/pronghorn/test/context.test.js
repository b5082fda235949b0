'use strict';

// Async contexts: a value that a program stores for a request (`AsyncLocalStorage.enterWith`) is
// visible to that request only, with each API and over each protocol, as in node:http.

const assert = require('node:assert/strict');
const { AsyncLocalStorage, createHook, executionAsyncResource } = require('node:async_hooks');
const http = require('node:http');
const http2 = require('node:http2');
const { after, before, describe, it } = require('node:test');
const { createServer } = require('../lib/http');
const { fetchHandler } = require('../lib/fetch');
const { faces, listening } = require('./support/clients');
const { ways } = require('./support/frameworks');
const { tls } = require('./support/certificate');
const { open } = require('./support/websocket');

const storage = new AsyncLocalStorage();
const noted = () => storage.getStore() ?? 'nothing';
const later = () => new Promise((resolve) => setTimeout(resolve, 1));

/**
 * Expected reports of the handlers: the stored value before `enterWith`, after an await, and in
 * callbacks of the request, where they differ from the request's own value.
 */
const handlers = {
  uWS(res, req) {
    const own = req.getUrl();
    const seen = [noted()];
    storage.enterWith(own);
    res.onAborted(() => {});
    res.onData(async (chunk, isLast) => {
      if (!isLast) return;
      await later();
      res.cork(() => res.end(JSON.stringify({ own, seen })));
    });
  },
  async http(req, res) {
    const own = req.url;
    const seen = [noted()];
    storage.enterWith(own);
    req.resume();
    await new Promise((resolve) => req.on('end', resolve));
    seen.push(noted());
    await later();
    seen.push(noted());
    res.end(JSON.stringify({ own, seen }));
  },
  async fetch(request) {
    const own = new URL(request.url).pathname;
    const seen = [noted()];
    storage.enterWith(own);
    await request.text();
    seen.push(noted());
    await later();
    seen.push(noted());
    return Response.json({ own, seen });
  },
};

const expected = {
  uWS: () => ['nothing'],
  http: (own) => ['nothing', own, own],
  fetch: (own) => ['nothing', own, own],
};

/** Sends requests one after the other, and then many at once. */
async function ask(request, port, door) {
  const one = async (path) => {
    const { own, seen } = JSON.parse(
      (await request(port, { path, method: 'POST', body: 'content' })).body,
    );
    assert.deepEqual({ own, seen }, { own: path, seen: expected[door](path) });
  };
  for (let number = 0; number < 5; number++) await one(`/one/${number}`);
  await Promise.all(Array.from({ length: 10 }, (_, number) => one(`/many/${number}`)));
}

/** Many pipelined requests on one connection, written at once. */
async function inOneBatch(port, count) {
  const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  await new Promise((resolve) => session.once('remoteSettings', resolve));
  const answers = Array.from({ length: count }, async (_, number) => {
    let body = '';
    const stream = session.request({ ':path': `/batch/${number}` });
    for await (const chunk of stream) body += chunk;
    return JSON.parse(body);
  });
  const all = await Promise.all(answers);
  session.close();
  return all;
}

describe('node:http', () => {
  it('has an async context for each request', async () => {
    const server = http.createServer(handlers.http).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    await ask(ways[0].request, server.address().port, 'http');
    server.close();
  });
});

for (const { name, make, protocol, request } of faces) {
  describe(name, () => {
    let app;
    let port;
    before(() => {
      app = make().any('/*', handlers.uWS);
      port = listening(app);
    });
    after(() => app.close());

    it('has an async context for each request', () => ask(request, port, 'uWS'));

    it('reports a client disconnect in the context of its request', async () => {
      const told = new Promise((resolve) => {
        app.any('/leaves/:who', (res, req) => {
          const own = executionAsyncResource();
          assert.equal(noted(), 'nothing');
          storage.enterWith(req.getParameter(0));
          res.onAborted(() => resolve(executionAsyncResource() === own));
        });
      });
      await request(port, {
        path: '/leaves/one',
        method: 'POST',
        body: 'x',
        unfinished: true,
        abort: 'now',
      });
      assert.equal(await told, true);
    });

    it('has an async context for each WebSocket', async () => {
      const seen = [];
      const all = new Promise((resolve) => {
        app.ws('/socket', {
          open: (ws) => {
            seen.push(noted());
            storage.enterWith('a socket');
            ws.own = executionAsyncResource();
          },
          message: (ws) => {
            assert.equal(executionAsyncResource(), ws.own);
            seen.push('message');
            if (seen.length === 6) resolve();
          },
        });
      });
      const clients = [];
      for (let number = 0; number < 3; number++)
        clients.push(await open(port, { protocol, secure: name !== 'App' }, { path: '/socket' }));
      for (const client of clients) client.command({ text: 'hello' });
      await all;
      assert.deepEqual(
        seen.filter((each) => each !== 'message'),
        ['nothing', 'nothing', 'nothing'],
      );
    });
  });
}

for (const { name, options, request } of ways) {
  describe(`${name}, with pronghorn/http and pronghorn/fetch`, () => {
    it('has an async context for each request of pronghorn/http', async () => {
      const server = createServer(options, handlers.http);
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      await ask(request, server.address().port, 'http');
      server.closeAllConnections();
      server.close();
    });

    it('has an async context for each request of a fetch handler', async () => {
      const app = faces
        .find((face) => face.request === request || (options.key && face.protocol === 'h3'))
        .make();
      app.any('/*', fetchHandler(handlers.fetch));
      const port = listening(app);
      await ask(request, port, 'fetch');
      app.close();
    });
  });
}

describe('a batch', () => {
  it('has an async context for each of its requests', async () => {
    const server = createServer(tls, (req, res) => {
      const seen = noted();
      storage.enterWith(req.url);
      res.end(JSON.stringify(seen));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    assert.deepEqual(new Set(await inOneBatch(server.address().port, 50)), new Set(['nothing']));
    server.close();
  });

  it('has an async context for each connection passed to a filter', async () => {
    const seen = [];
    const { make, request } = faces[0];
    const app = make()
      .filter(() => {
        seen.push(noted());
        storage.enterWith('a filter');
      })
      .get('/', (res) => {
        seen.push(noted());
        res.end();
      });
    const port = listening(app);
    for (let number = 0; number < 5; number++) await request(port);
    assert.deepEqual(new Set(seen), new Set(['nothing']));
    app.close();
  });

  it('ends the async context of each request', async () => {
    const begun = new Set();
    let ended = 0;
    const hook = createHook({
      init: (id, type) => type === 'PRONGHORNREQUEST' && begun.add(id),
      destroy: (id) => (ended += begun.delete(id) ? 1 : 0),
    }).enable();
    const app = faces[1].make().any('/*', handlers.uWS);
    const port = listening(app);
    await inOneBatch(port, 20);
    // Async hooks report the end of a resource slightly later.
    while (ended < 20) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([ended, begun.size], [20, 0]);
    hook.disable();
    app.close();
  });
});
