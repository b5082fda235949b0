'use strict';

// Behaviour that programs and tools expect of a Node.js server, compared with node:http where
// possible.

const assert = require('node:assert/strict');
const diagnostics = require('node:diagnostics_channel');
const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const net = require('node:net');
const { after, before, describe, it } = require('node:test');
const { inspect } = require('node:util');
const pronghorn = require('../lib/http');
const { fetchHandler } = require('../lib/fetch');
const { tls } = require('./support/certificate');
const { faces, listening } = require('./support/clients');
const { ways, happening } = require('./support/frameworks');

const turn = () => new Promise((resolve) => setImmediate(resolve));
const listen = (server) =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)));

describe('the automatic 500', () => {
  const set = (res) => {
    res
      .writeHeader('cache-control', 'public')
      .writeHeader('set-cookie', 'a=b')
      .writeHeader('content-encoding', 'br');
    throw new Error('meant');
  };
  const doors = {
    uWS: (app) => app.any('/*', (res) => set(res)),
    'uWS, later': (app) =>
      app.any('/*', async (res) => {
        res.onAborted(() => {});
        await turn();
        set(res);
      }),
    fetch: (app) =>
      app.any(
        '/*',
        fetchHandler(
          () =>
            new Response(new ReadableStream({ pull: () => Promise.reject(new Error('meant')) }), {
              headers: { 'cache-control': 'public', 'set-cookie': 'a=b', 'content-encoding': 'br' },
            }),
        ),
      ),
  };
  for (const [door, make] of Object.entries(doors)) {
    for (const { name, make: makeApp, request } of faces) {
      it(`does not carry the failed response's fields: ${door}, ${name}`, async () => {
        const app = make(makeApp({ onError: () => {} }));
        const answer = await request(listening(app));
        // A stream may have started before it fails.
        if (answer.error === undefined || answer.status === 500) {
          assert.equal(answer.status, 500);
          assert.deepEqual(
            ['cache-control', 'set-cookie', 'content-encoding'].map(
              (field) => answer.fields[field],
            ),
            ['no-store', undefined, undefined],
          );
        } else {
          assert.equal(door, 'fetch');
        }
        app.close();
      });
    }
  }
});

describe('a client that disconnects', () => {
  /**
   * Returns the events when an HTTP/1.1 client leaves during the response, with a complete or
   * incomplete request.
   */
  async function emitted(createServer, sent) {
    const told = [];
    const gone = happening();
    const server = createServer({}, (request, response) => {
      const parts = { request, response, socket: request.socket };
      // Each of them closes, on a busy machine not at once.
      const closed = Object.values(parts).map(
        (emitter) => new Promise((resolve) => emitter.once('close', resolve)),
      );
      Promise.all(closed).then(() => setTimeout(gone.happen, 20));
      for (const [part, emitter] of Object.entries(parts)) {
        emitter.on('close', () => told.push(`${part} close`));
        // The parser of node:http has its own error code for a truncated request.
        emitter.on('error', (error) =>
          told.push(`${part} ${error.code.replace('HPE_INVALID_EOF_STATE', 'ECONNRESET')}`),
        );
      }
      request.on('aborted', () => told.push('request aborted'));
      request.resume();
      response.write('begun');
    });
    const client = net.connect(await listen(server), '127.0.0.1', () => client.write(sent));
    await new Promise((resolve) => client.once('data', resolve));
    client.end();
    await gone.promise;
    client.destroy();
    server.closeAllConnections();
    server.close();
    return told.sort();
  }
  const whole = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';
  const part = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\npart';
  for (const [what, sent] of Object.entries({ whole, part })) {
    it(`is reported as by node:http: ${what}`, async () => {
      const expected = await emitted(http.createServer, sent);
      assert.deepEqual(await emitted(pronghorn.createServer, sent), expected);
    });
  }
});

for (const { name, options, request } of ways) {
  describe(`${name}, with pronghorn/http and pronghorn/fetch`, () => {
    it('prints with console.log as with node:http', async () => {
      const shown = [];
      const app = faces
        .find((face) => face.request === request || (options.key && face.protocol === 'h3'))
        .make();
      let kept;
      app.any(
        '/*',
        fetchHandler(async (asked, info) => {
          kept = asked;
          shown.push(inspect(asked), inspect({ deep: { deeper: { asked } } }), inspect(info));
          // Inspecting consumes nothing.
          return new Response(await asked.text());
        }),
      );
      const answer = await request(listening(app), {
        path: '/shown',
        method: 'POST',
        body: 'content',
      });
      assert.equal(answer.body.toString(), 'content');
      assert.match(
        shown[0],
        /^Request \{\n {2}method: 'POST',\n {2}url: 'https?:\/\/localhost.*\/shown',/,
      );
      assert.match(inspect(kept), /^Request \{/);
      app.close();

      const server = pronghorn.createServer(options, (req, res) => {
        shown.push(inspect(req), inspect(res), inspect(req.socket));
        res.end();
      });
      assert.equal((await request(await listen(server))).status, 200);
      server.closeAllConnections();
      server.close();
    });

    it('continues reading a piped body after the response is complete', async () => {
      const received = happening();
      const chunks = [];
      const app = faces
        .find((face) => face.request === request || (options.key && face.protocol === 'h3'))
        .make();
      app.any(
        '/*',
        fetchHandler((asked) => {
          const sink = new WritableStream({
            write: (chunk) => void chunks.push(Buffer.from(chunk)),
            close: () => received.happen(),
          });
          // The promise is not awaited.
          asked.body.pipeTo(sink);
          return new Response(null, { status: 202 });
        }),
      );
      const body = Buffer.alloc(200_000, 'content ');
      const answer = await request(listening(app), {
        method: 'POST',
        body: body.subarray(0, 1000),
        late: body.subarray(1000),
      });
      assert.equal(answer.status, 202);
      await received.promise;
      assert.equal(Buffer.concat(chunks).equals(body), true);
      app.close();
    });
  });
}

describe('the shape of node:http objects', () => {
  /** Returns what the same handlers see with both servers. */
  async function seen(createServer) {
    const found = {};
    const closed = happening();
    const server = createServer({}, async (req, res) => {
      if (req.url === '/break') {
        for await (const chunk of req) if (chunk.length > 0) break;
        res.end('after it');
      } else {
        found.before = [
          res.writableLength,
          res.writableNeedDrain,
          typeof res.writableHighWaterMark,
        ];
        const events = [];
        for (const [name, emitter] of Object.entries({ response: res, socket: req.socket })) {
          emitter.on('close', () => events.push(name));
        }
        req.socket.on('close', () => closed.happen(events));
        const hasRoom = res.write(Buffer.alloc(4 << 20));
        found.full = [hasRoom, res.writableLength > 0, res.writableNeedDrain];
        if (!hasRoom) await new Promise((resolve) => res.once('drain', resolve));
        found.drained = res.writableNeedDrain;
        res.end();
      }
    });
    const port = await listen(server);
    const broken = await ways[0].request(port, { path: '/break', method: 'POST', body: 'content' });
    await ways[0].request(port, { path: '/full' });
    found.closed = await closed.promise;
    server.closeAllConnections();
    server.close();

    const events = [];
    const unwanted = createServer({}, () => {});
    for (const event of ['listening', 'close', 'error'])
      unwanted.on(event, () => events.push(event));
    unwanted.listen({ port: 0, signal: AbortSignal.abort() });
    await turn();
    await turn();
    return {
      ...found,
      broken: [broken.status, broken.body?.toString()],
      events,
      listening: unwanted.listening,
    };
  }

  it('matches what programs see with node:http', async () => {
    const expected = await seen(http.createServer);
    assert.deepEqual(expected.full, [false, true, true]);
    assert.deepEqual(await seen(pronghorn.createServer), expected);
  });
});

describe('an idle request', () => {
  const whole = 'GET / HTTP/1.1\r\nhost: a\r\n\r\n';
  const part = 'POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\npart';
  /** Returns which of these listeners receive 'timeout'. */
  async function told(createServer, sent, listeners) {
    const events = [];
    const over = happening();
    const server = createServer({}, (request, response) => {
      const parts = { request, response, server, socket: request.socket };
      for (const part of listeners) parts[part].once('timeout', () => events.push(part));
      request.on('error', () => {});
      request.socket.once('close', over.happen);
      request.resume();
      request.setTimeout(20, () => events.push('callback'));
      request.socket.once('timeout', () => {
        // A busy machine may let the time pass once more before the connection has ended.
        request.socket.setTimeout(0);
        response.end();
      });
    });
    const client = net.connect(await listen(server), '127.0.0.1', () => client.write(sent));
    // In node:http the socket belongs to the connection.
    client.on('error', () => {}).on('data', () => client.end());
    await over.promise;
    client.destroy();
    server.closeAllConnections();
    server.close();
    return events;
  }
  const all = ['request', 'response', 'server', 'socket'];
  for (const [what, sent] of Object.entries({ whole, part })) {
    for (const listeners of [
      [],
      ['socket'],
      ['response'],
      ['server', 'response'],
      ['request'],
      all,
    ]) {
      it(`is reported as by node:http: ${what}, to ${listeners.join(' and ') || 'nobody'}`, async () => {
        const expected = await told(http.createServer, sent, listeners);
        assert.deepEqual(await told(pronghorn.createServer, sent, listeners), expected);
      });
    }
  }
});

describe('a request body that continues after the response', () => {
  it('arrives before its socket closes', async () => {
    const play = async (createServer) => {
      const events = [];
      const closed = happening();
      const server = createServer({}, (request, response) => {
        request.on('end', () => events.push('end'));
        request.socket.on('close', () => closed.happen(events.push('close')));
        let size = 0;
        request.on('data', (chunk) =>
          events.push(...((size += chunk.length) === 20 ? ['whole'] : [])),
        );
        response.end('early');
      });
      const port = await listen(server);
      const answer = await ways[0].request(port, {
        method: 'POST',
        body: '0123456789',
        late: Buffer.from('0123456789'),
      });
      await closed.promise;
      server.closeAllConnections();
      server.close();
      return [answer.body.toString(), events];
    };
    const expected = await play(http.createServer);
    assert.deepEqual(expected, ['early', ['whole', 'end', 'close']]);
    assert.deepEqual(await play(pronghorn.createServer), expected);
  });
});

describe('the TE header field', () => {
  for (const { name, protocol, options, request } of ways) {
    it(`of a response has no effect: ${name}`, async () => {
      const server = pronghorn.createServer(options, (req, res) => {
        res.setHeader('te', 'gzip');
        res.setHeader('trailer', 'te');
        res.addTrailers({ te: 'gzip' });
        res.end('served');
      });
      const answer = await request(await listen(server), { headers: { te: 'trailers' } });
      assert.deepEqual([answer.status, answer.body?.toString()], [200, 'served'], answer.error);
      assert.equal(answer.fields.te, protocol === 'http/1.1' ? 'gzip' : undefined);
      server.closeAllConnections();
      server.close();
    });
  }
});

describe('a stream of strings instead of bytes', () => {
  it('is cancelled with an error', async () => {
    const cancelled = happening();
    const app = faces[0].make({ onError: () => {} }).any(
      '/*',
      fetchHandler(
        () =>
          new Response(
            new ReadableStream({ pull: (to) => to.enqueue('text'), cancel: cancelled.happen }),
          ),
      ),
    );
    const answer = await faces[0].request(listening(app));
    assert.ok(answer.status === 500 || answer.error !== undefined);
    assert.match((await cancelled.promise).message, /Uint8Arrays/);
    app.close();
  });
});

describe('tools that observe node:http', () => {
  let server;
  let port;
  before(async () => {
    server = pronghorn.createServer((req, res) => res.end('hello'));
    port = await listen(server);
  });
  after(() => server.close());

  it('are notified through its diagnostics channels', async () => {
    const told = [];
    const channels = ['http.server.request.start', 'http.server.response.finish'];
    const listeners = channels.map((name) => ({ request, response, socket, server: from }) => {
      told.push([
        name,
        request.url,
        response.statusCode,
        socket === request.socket,
        from === server,
      ]);
    });
    channels.forEach((name, index) => diagnostics.subscribe(name, listeners[index]));
    await ways[0].request(port, { path: '/told' });
    channels.forEach((name, index) => diagnostics.unsubscribe(name, listeners[index]));
    assert.deepEqual(
      told,
      channels.map((name) => [name, '/told', 200, true, true]),
    );
  });

  it('find an http.Server with observable events', async () => {
    assert.equal(server instanceof http.Server, true);
    assert.equal(server instanceof net.Server, true);
    const seen = [];
    const { emit } = http.Server.prototype;
    http.Server.prototype.emit = function (event, ...given) {
      seen.push(event);
      return emit.call(this, event, ...given);
    };
    await ways[0].request(port);
    delete http.Server.prototype.emit;
    assert.equal(seen.includes('request'), true);
    // The methods inherited from net.Server report the state of this server.
    assert.equal(server.listening, true);
    assert.equal(typeof server.address().port, 'number');
    assert.equal(
      await new Promise((resolve) => server.getConnections((_, count) => resolve(typeof count))),
      'number',
    );
  });

  // Tools that patch both prototypes use them to tell whether a request came over TLS.
  it('see TLS requests on the prototype of node:https and others on that of node:http', async () => {
    const certificate = {
      key: fs.readFileSync(tls.key_file_name),
      cert: fs.readFileSync(tls.cert_file_name),
    };
    const hello = (req, res) => res.end('hello');
    const servers = {
      node: [http.createServer(hello), https.createServer(certificate, hello)],
      pronghorn: [pronghorn.createServer(hello), pronghorn.createServer(certificate, hello)],
    };
    const seen = { node: [], pronghorn: [] };
    const undo = Object.entries({ http, https }).map(([name, { Server }]) => {
      const { emit } = Server.prototype;
      const isOwn = Object.hasOwn(Server.prototype, 'emit');
      Server.prototype.emit = function (event, ...given) {
        const [from] = Object.entries(servers).find(([, both]) => both.includes(this)) ?? [];
        if (event === 'request' && from !== undefined)
          seen[from].push([name, servers[from].indexOf(this)]);
        return emit.call(this, event, ...given);
      };
      return () => (isOwn ? (Server.prototype.emit = emit) : delete Server.prototype.emit);
    });
    for (const both of Object.values(servers)) {
      for (const [at, made] of both.entries()) {
        const to = await listen(made);
        assert.equal((await ways[at].request(to)).status, 200);
        await new Promise((resolve) => made.close(resolve));
      }
    }
    undo.forEach((back) => back());
    assert.deepEqual(seen.node, [
      ['http', 0],
      ['https', 1],
    ]);
    assert.deepEqual(seen.pronghorn, seen.node);
  });
});
