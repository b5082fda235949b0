'use strict';

// Edge cases of applications, threads and memory.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const net = require('node:net');
const path = require('node:path');
const { describe, it } = require('node:test');
const uWS = require('..');
const { createServer } = require('../lib/http');
const { tls } = require('./support/certificate');
const { faces, listening } = require('./support/clients');
const { open } = require('./support/websocket');

const clear = faces[0].request;
const text = (answer) => answer.body?.toString();

/** Runs a program in its own process, and returns the JSON that it writes. */
function run(code) {
  const options = { cwd: path.join(__dirname, '..'), encoding: 'utf8', timeout: 100_000 };
  const { stdout, stderr, status } = spawnSync(process.execPath, ['--eval', code], options);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

describe('closing', () => {
  it('may be requested again, and the shorter time applies', async () => {
    for (const { name, make, request } of faces) {
      let arrived;
      const hasArrived = new Promise((resolve) => (arrived = resolve));
      const app = make().get('/*', (res) => {
        res.onAborted(() => {});
        arrived();
      });
      const waiting = request(listening(app));
      await hasArrived;
      const first = app.close({ timeout: 10_000_000 });
      const second = app.close({ timeout: 1 });
      app.close({ timeout: 10_000_000 });
      await Promise.all([first, second]);
      assert.ok((await waiting).error, name);
      await app.close({ timeout: 1 });
    }
  });

  it('does not affect the ports of an app that listens again', async () => {
    const app = uWS.App().get('/*', (res) => res.end('still'));
    let old;
    app.listen('127.0.0.1', 0, (socket) => (old = socket));
    const other = uWS.App();
    // While the end of the former listener is reported, the new one must not be mistaken for it.
    app.close();
    const port = listening(app);
    await null;
    assert.equal(uWS.us_socket_local_port(old), -1);
    uWS.us_listen_socket_close(old);
    assert.equal(text(await clear(port)), 'still');
    await app.close({ timeout: 1000 });
    other.close();
  });
});

describe('programs written for uWebSockets.js', () => {
  it('may create apps with new, pass the port as a string, and use wildcard routes', async () => {
    const app = new uWS.App().get('/files/*rest', (res, req) => res.end(req.getUrl()));
    let port;
    app.listen('127.0.0.1', '0', (socket) => (port = uWS.us_socket_local_port(socket)));
    assert.equal(text(await clear(port, { path: '/files/a/b' })), '/files/a/b');
    app.close();
    const other = new uWS.SSLApp(tls).listen(
      '0',
      (socket) => (port = uWS.us_socket_local_port(socket)),
    );
    assert.ok(port > 0);
    other.close();
  });

  it('may write header values with surrounding spaces over all protocols', async () => {
    for (const { name, make, request } of faces) {
      const app = make().get('/*', (res) =>
        res.writeHeader('x-spaces', ' \tin  between ').writeHeader('x-none', ' ').end(),
      );
      const { fields } = await request(listening(app));
      assert.deepEqual([fields['x-spaces'], fields['x-none']], ['in  between', ''], name);
      app.close();
    }
  });

  it('may write bytes that are not UTF-8 and unregistered status codes', async () => {
    const app = uWS.App().get('/*', (res) => {
      res
        .writeStatus('299 Odd')
        .writeHeader('x-bytes', Buffer.from([0xe9, 0x41]))
        .end('answer', 1);
    });
    const socket = net.connect(listening(app), '127.0.0.1');
    socket.end('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
    const chunks = [];
    for await (const chunk of socket) chunks.push(chunk);
    const answer = Buffer.concat(chunks).toString('latin1');
    assert.match(answer, /^HTTP\/1\.1 299 \r\n/);
    assert.match(answer, /\r\nx-bytes: \xe9A\r\n/i);
    assert.match(answer, /\r\nconnection: close\r\n/i);
    app.close();
  });

  it('answer HTTP/1.0 health checks without a Host header', async () => {
    const app = uWS.App().any('/*', (res, req) => res.end(req.getHeader('host')));
    const port = listening(app);
    const socket = net.connect(port, '127.0.0.1');
    socket.write('OPTIONS / HTTP/1.0\r\n\r\n');
    const chunks = [];
    for await (const chunk of socket) chunks.push(chunk);
    assert.match(
      Buffer.concat(chunks).toString(),
      new RegExp(`^HTTP/1.0 200 OK\r\n.*\r\n127.0.0.1:${port}$`, 's'),
    );
    app.close();
  });

  it('answer a client that half-closes after its request body', async () => {
    for (const content of ['hello', 'x'.repeat(1 << 20)]) {
      let begun;
      const hasBegun = new Promise((resolve) => (begun = resolve));
      const app = uWS.App().post('/*', (res) => {
        res.onAborted(() => {});
        res.collectBody(1 << 20, (body) => res.end(`had ${body.byteLength}`));
        begun();
      });
      const socket = net.connect(listening(app), '127.0.0.1');
      socket.write(`POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${content.length}\r\n\r\n`);
      await hasBegun;
      socket.end(content);
      const chunks = [];
      for await (const chunk of socket) chunks.push(chunk);
      assert.ok(
        Buffer.concat(chunks).toString().endsWith(`had ${content.length}`),
        Buffer.concat(chunks).toString(),
      );
      app.close();
    }
  });

  it('are notified of a client that resets or stops sending its request', async () => {
    for (const rest of ['', 'he', 'x'.repeat(100_000)]) {
      let begun;
      const hasBegun = new Promise((resolve) => (begun = resolve));
      const app = uWS.App();
      const left = new Promise((resolve) =>
        app.any('/*', (res) => void begun(res.onAborted(resolve))),
      );
      const socket = net.connect(listening(app), '127.0.0.1');
      socket.write(
        `POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ${rest.length || 5}\r\n\r\n${rest}`,
      );
      await hasBegun;
      socket.destroy();
      await left;
      app.close();
    }
  });
});

describe('invalid use', () => {
  it('is reported', async () => {
    const app = uWS.App();
    const cases = [
      [
        () => app.get('/a/*/b', () => {}),
        /takes '\*' as the last segment alone.*"\/a\/\*\/b".*':any'/,
      ],
      [() => app.get('/*/*', () => {}), /the last segment alone/],
      [() => app.listen(0, 7, () => {}), /LIBUS_LISTEN_EXCLUSIVE_PORT as its options, not 7/],
      [
        () => uWS.SSLApp(tls).addServerName('x.test', { ...tls, limits: {} }),
        /app\.addServerName\(\) has no option "limits"/,
      ],
    ];
    for (const [action, message] of cases) assert.throws(action, message, String(action));
    // Programs for uWebSockets.js do this.
    const warned = new Promise((resolve) => process.once('warning', resolve));
    uWS.App({ ...tls, passphrase: '1234' });
    assert.match(
      (await warned).message,
      /App speaks clear text: key_file_name and cert_file_name have no effect/,
    );
  });

  it('of collectBody is an error', async () => {
    const reported = [];
    const app = uWS.App({ onError: (error) => reported.push(error.message) }).post('/*', (res) => {
      res.onAborted(() => {});
      res.collectBody(undefined, () => {});
    });
    assert.equal((await clear(listening(app), { method: 'POST', body: 'x' })).status, 500);
    assert.match(
      reported[0],
      /takes the maximum size of the body in bytes, a number, not undefined/,
    );
    app.close();
  });
});

describe('memory', () => {
  it('is not allocated for what tryEnd cannot send', () => {
    const grown = run(`
      const uWS = require('pronghorn');
      const http = require('node:http');
      // Untouched zero pages take no memory when they are read; a copy of them does.
      const content = new Uint8Array(512 << 20);
      const app = uWS.App().get('/', (res) => {
        res.onAborted(() => {});
        const before = process.resourceUsage().maxRSS;
        const result = res.tryEnd(content, content.length);
        console.log(JSON.stringify([result, process.resourceUsage().maxRSS - before]));
        res.close();
        app.close();
      });
      app.listen('127.0.0.1', 0, (socket) => {
        http.get({ port: uWS.us_socket_local_port(socket), host: '127.0.0.1' }, () => {}).on('error', () => {});
      });
    `);
    assert.deepEqual(grown[0], [false, false]);
    assert.ok(grown[1] < 128 << 10, `${grown[1]} KiB more`);
  });

  it('of a program that requests a body is bounded', async () => {
    const echo = new uWS.DeclarativeResponse().writeBody().end();
    for (const { name, make, request } of faces) {
      const app = make().post('/*', echo);
      const port = listening(app);
      const [full, more] = [Buffer.alloc(1 << 20, 'a'), Buffer.alloc((1 << 20) + 1, 'a')];
      assert.ok(
        (await request(port, { method: 'POST', body: full, pieces: 4 })).body.equals(full),
        name,
      );
      assert.equal(
        (await request(port, { method: 'POST', body: more, pieces: 4 })).status,
        413,
        name,
      );
      app.close();
    }
  });

  it('of a thread is freed when the thread ends', () => {
    const grown = run(`
      const { Worker, isMainThread } = require('node:worker_threads');
      const code = \`
        const uWS = require('pronghorn');
        // An app's 8 MB are allocated on the native side.
        const app = uWS.App();
        const program = () => {
          const long = new uWS.DeclarativeResponse();
          for (let index = 0; index < 16; index++) long.write('x'.repeat(65000));
          return long.end();
        };
        for (let index = 0; index < 8; index++) app.get('/' + index, program());
        app.listen('127.0.0.1', 0, () => {});
        process.exit();
      \`;
      const thread = () => new Promise((resolve) => new Worker(code, { eval: true }).on('exit', resolve));
      (async () => {
        // The addon has never been loaded by the main thread.
        for (let round = 0; round < 4; round++) await thread();
        const before = process.memoryUsage().rss;
        for (let round = 0; round < 16; round++) await thread();
        console.log(JSON.stringify([(process.memoryUsage().rss - before) >> 20]));
      })();
    `);
    assert.ok(grown[0] < 64, `${grown[0]} MiB more after 16 threads`);
  });
});

describe('threads', () => {
  it('serve although the main thread has not loaded the addon', () => {
    const answers = run(`
      const { Worker } = require('node:worker_threads');
      const http = require('node:http');
      const code = \`
        const uWS = require('pronghorn');
        uWS.App().get('/*', (res) => res.end('thread')).listen('127.0.0.1', 0, (socket) => {
          require('node:worker_threads').parentPort.postMessage(uWS.us_socket_local_port(socket));
        });
      \`;
      const get = (port) => new Promise((resolve, reject) => {
        http.get({ port, host: '127.0.0.1', agent: false }, (response) => response.setEncoding('utf8').on('data', resolve)).on('error', reject);
      });
      (async () => {
        const answers = [];
        for (let round = 0; round < 3; round++) {
          const thread = new Worker(code, { eval: true });
          const port = await new Promise((resolve) => thread.once('message', resolve));
          answers.push(await get(port));
          await thread.terminate();
        }
        console.log(JSON.stringify(answers));
      })();
    `);
    assert.deepEqual(answers, ['thread', 'thread', 'thread']);
  });
});

describe('events delivered in one turn', () => {
  it('are delivered although an earlier error has no listener', () => {
    const messages = run(`
      const uWS = require('.');
      const net = require('node:net');
      process.on('uncaughtException', () => {});
      console.error = () => {
        throw new Error('nobody listens');
      };
      const frame = (kind, text) => Buffer.concat([Buffer.of(0x80 | kind, 0x80 | text.length, 0, 0, 0, 0), Buffer.from(text)]);
      const seen = [];
      const app = uWS.App().ws('/*', {
        message(ws, content, isBinary) {
          const text = Buffer.from(content).toString();
          seen.push([text, isBinary]);
          if (seen.length === 3) process.stdout.write(JSON.stringify(seen), () => process.exit());
          if (text !== 'throw') return;
          // In separate turns of the event loop.
          setImmediate(() => client.write(frame(1, 'third'), () => setImmediate(() => client.write(frame(1, 'fourth')))));
          throw new Error('by the handler');
        },
      });
      let client;
      app.listen('127.0.0.1', 0, (socket) => {
        client = net.connect(uWS.us_socket_local_port(socket), '127.0.0.1');
        client.write('GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n' +
          'Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n');
        client.once('data', () => client.write(Buffer.concat([frame(1, 'throw'), frame(2, 'second')])));
      });
    `);
    assert.deepEqual(messages, [
      ['throw', false],
      ['second', true],
      ['third', false],
    ]);
  });
});

describe('a response', () => {
  it('with invalid calls can still be sent, and does not affect other requests', async () => {
    let context;
    const waiting = {};
    const arrived = {};
    const keep = (name) => {
      arrived[name] = new Promise((resolve) => {
        waiting[name] = (res) => {
          res.onAborted(() => {});
          // After its handler has returned.
          setImmediate(() => resolve(res));
        };
      });
      return (res) => waiting[name](res);
    };
    const app = uWS
      .App()
      .get('/one', keep('one'))
      .get('/two', keep('two'))
      .ws('/ws', {
        upgrade(res, _req, given) {
          context = given;
          res.writeStatus('403').end();
        },
      });
    const port = listening(app);
    assert.equal(
      (await open(port, { protocol: 'http/1.1', secure: false }, { path: '/ws' })).status,
      403,
    );
    const first = clear(port, { path: '/one' });
    const one = await arrived.one;
    assert.throws(
      () => one.upgrade({}, 'dGhlIHNhbXBsZSBub25jZQ==', '', '', context),
      /does not ask for a WebSocket/,
    );
    const second = clear(port, { path: '/two' });
    const two = await arrived.two;
    one.end('one');
    two.end('two');
    assert.deepEqual([text(await first), text(await second)], ['one', 'two']);
    app.close();
  });

  it('accepts memory shared between threads', async () => {
    const { recognized } = require('../lib/text');
    const views = (memory) => [
      memory,
      new Uint8Array(memory),
      Buffer.from(memory),
      new DataView(memory),
    ];
    // The data is copied, because another thread may write to it meanwhile.
    for (const view of views(new SharedArrayBuffer(12))) {
      assert.ok(recognized('test', view).buffer instanceof ArrayBuffer, view.constructor.name);
    }
    for (const view of views(new ArrayBuffer(12)))
      assert.equal(recognized('test', view).buffer, view.buffer ?? view);
    for (const { name, make, request } of faces) {
      const shared = new SharedArrayBuffer(12);
      const bytes = new Uint8Array(shared, 4);
      bytes.set(Buffer.from('a thread'));
      const app = make()
        .get('/end', (res) => res.writeHeader('x-shared', bytes).end(bytes))
        .get('/view', (res) => res.end(new Float32Array(shared, 4)))
        .get('/buffer', (res) => res.end(Buffer.from(shared, 4)))
        .get('/write', (res) => {
          res.write(bytes);
          res.tryEnd(bytes, 16);
        })
        .get('/whole', (res) => res.end(shared));
      const port = listening(app);
      for (const path of ['/end', '/view', '/buffer']) {
        const answer = await request(port, { path });
        assert.equal(text(answer), 'a thread', `${name} ${path}`);
      }
      assert.equal(text(await request(port, { path: '/write' })), 'a threada thread', name);
      assert.equal(text(await request(port, { path: '/whole' })), '\0\0\0\0a thread', name);
      app.close();
    }
  });
});

describe('a client that disconnects before its handler runs', () => {
  const doors = {
    uWS: async (make, write) => {
      const app = make({}).any('/*', (res) => {
        res.onAborted(() => {});
        write((chunk) => res.write(chunk));
      });
      return { port: listening(app), close: () => app.close() };
    },
    http: async (_make, write) => {
      const server = createServer(tls, (_request, response) => {
        response.on('error', () => {});
        write((chunk) => response.write(chunk));
      });
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      return { port: server.address().port, close: () => server.close() };
    },
  };
  const most = 10_000;
  for (const [door, serve] of Object.entries(doors)) {
    for (const { name, make, request } of faces.filter(({ protocol }) => protocol !== 'http/1.1')) {
      it(`does not let the handler write without bound: ${door}, ${name}`, async () => {
        let longest = 0;
        const { port, close } = await serve(make, (write) => {
          let count = 0;
          while (write('x'.repeat(1000)) && count < most) count++;
          longest = Math.max(longest, count);
        });
        for (let round = 0; round < 10; round++) await request(port, { abort: 'now' });
        close();
        assert.ok(longest < most, 'a handler that writes while there is room has not ended');
      });
    }
  }
});
