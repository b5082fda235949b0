'use strict';

// Applications: server names and certificates, listening and closing, invalid use, threads.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const tlsModule = require('node:tls');
const { describe, it } = require('node:test');
const { Worker } = require('node:worker_threads');
const uWS = require('..');
const { createServer } = require('../lib/http');
const { serve } = require('../lib/fetch');
const { folder, make, tls } = require('./support/certificate');
const { faces, listening, overHttp2, overHttp3, released, secure } = require('./support/clients');
const h3 = require('./support/h3');

const clear = faces[0].request;
const text = (answer) => answer.body?.toString();

/** Returns the name on the certificate that a client of this server name gets. */
function shown(port, servername) {
  return new Promise((resolve) => {
    const socket = tlsModule.connect(
      { port, host: '127.0.0.1', servername, rejectUnauthorized: false },
      () => {
        resolve(socket.getPeerCertificate().subject.CN);
        socket.destroy();
      },
    );
    socket.on('error', (error) => resolve(error.code));
  });
}

describe('Server', () => {
  it('serves all protocols on one port and reports which', async () => {
    const app = uWS.Server(tls).get('/*', (res, req) => res.end(req.getProtocol()));
    const port = listening(app);
    const answers = await Promise.all([secure(port), overHttp2(port), overHttp3(port)]);
    assert.deepEqual(answers.map(text), ['http/1.1', 'h2', 'h3']);
    for (const answer of answers) assert.equal(answer.raw['alt-svc'], `h3=":${port}"; ma=86400`);
    app.close();
  });
});

describe('certificates', () => {
  const [one, wild, late] = [make('one.test'), make('*.wild.test'), make('late.test')];

  it('are selected by server name, over TCP and QUIC', async () => {
    const asked = [];
    const app = uWS
      .Server(tls)
      .addServerName('one.test', one)
      .addServerName('*.wild.test', wild)
      .missingServerName((name) => {
        asked.push(name);
        if (name === 'late.test') app.addServerName(name, late);
      })
      .get('/*', (res) => res.end('all'))
      .domain('one.test')
      .get('/*', (res) => res.end('one'));
    const port = listening(app);
    assert.equal(await shown(port, 'one.test'), 'one.test');
    assert.equal(await shown(port, 'a.wild.test'), '*.wild.test');
    assert.equal(await shown(port, 'late.test'), 'late.test');
    assert.equal(await shown(port, 'late.test'), 'late.test');
    assert.equal(await shown(port, 'other.test'), 'localhost');
    assert.deepEqual(asked, ['late.test', 'other.test']);
    const over = async (server_name) =>
      (await h3.request(port, { server_name, host: server_name, certificate: true })).certificate;
    assert.deepEqual(
      [await over('one.test'), await over('b.wild.test'), await over('other.test')],
      ['CN=one.test', 'CN=*.wild.test', 'CN=localhost'],
    );
    for (const request of [secure, overHttp2, overHttp3]) {
      assert.equal(text(await request(port, { host: 'one.test' })), 'one');
      assert.equal(text(await request(port, { host: 'two.test' })), 'all');
    }
    app.removeServerName('one.test');
    assert.equal(await shown(port, 'one.test'), 'localhost');
    assert.equal(text(await secure(port, { host: 'one.test' })), 'all');
    app.close();
  });

  it('are replaced without a restart', async () => {
    const app = uWS.SSLApp(tls).get('/*', (res) => res.end());
    const port = listening(app);
    assert.equal(await shown(port, 'localhost'), 'localhost');
    app.setCertificate(one);
    assert.equal(await shown(port, 'localhost'), 'one.test');
    app.close();
  });

  it('are accepted as PEM in memory', async () => {
    const [key, cert] = [
      fs.readFileSync(one.key_file_name),
      fs.readFileSync(one.cert_file_name, 'utf8'),
    ];
    const app = uWS.SSLApp({ key, cert }).get('/*', (res) => res.end());
    assert.equal(await shown(listening(app), 'one.test'), 'one.test');
    app.close();
  });
});

describe('options', () => {
  it('set limits and the server header', async () => {
    for (const { name, make: makeApp, request } of faces) {
      const app = makeApp({
        limits: { request_body_bytes: '1KiB' },
        server: 'test/1',
        earlyData: 'off',
        congestion: 'bbr',
      });
      app.post('/*', (res) => {
        res.onAborted(() => {});
        res.collectBody(1_000_000, (body) => res.end(String(body.byteLength)));
      });
      const port = listening(app);
      const small = await request(port, { method: 'POST', body: 'x'.repeat(1024) });
      assert.deepEqual([text(small), small.fields.server], ['1024', 'test/1'], name);
      const large = await request(port, {
        method: 'POST',
        body: 'x'.repeat(1025),
        headers: { 'content-length': '1025' },
      });
      assert.equal(large.status, 413, name);
      const unannounced = await request(port, {
        method: 'POST',
        body: 'x'.repeat(2000),
        pieces: 2,
      });
      assert.equal(unannounced.status, 413, name);
      app.close();
    }
  });
});

describe('listening', () => {
  it('accepts a host, options and a callback, and reports its port', () => {
    const app = uWS.App();
    const seen = [];
    const note = (socket) => seen.push(uWS.us_socket_local_port(socket));
    assert.equal(app.listen(0, note), app);
    app.listen('127.0.0.1', 0, note);
    app.listen(0, uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, note);
    app.listen('localhost', 0, uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, note);
    assert.equal(seen.length, 4);
    for (const port of seen) assert.ok(port > 0);
    app.close();
  });

  it('reports a port in use with what to do', async () => {
    const other = net.createServer();
    await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address();
    const app = uWS.App();
    const [socket, error] = await new Promise((resolve) =>
      app.listen('127.0.0.1', port, (...given) => resolve(given)),
    );
    assert.equal(socket, false);
    assert.equal(error.code, 'EADDRINUSE');
    assert.match(
      error.message,
      new RegExp(
        `127\\.0\\.0\\.1:${port} \\(TCP\\).*another server has port ${port}; stop it, or listen on another port`,
      ),
    );
    assert.throws(() => app.listen('127.0.0.1', port), { code: 'EADDRINUSE' });
    // A callback that ignores the error.
    const warned = new Promise((resolve) => process.once('warning', resolve));
    app.listen('127.0.0.1', port, (token) => assert.equal(token, false));
    assert.match((await warned).message, /stop it, or listen on another port/);
    other.close();
  });

  it('shares a port within the process unless it is exclusive', () => {
    const [one, two, three] = [uWS.App(), uWS.App(), uWS.App()];
    const port = listening(one);
    two.listen('127.0.0.1', port, (socket) => assert.ok(socket));
    three.listen('127.0.0.1', port, uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, (socket, _error) =>
      assert.equal(socket, false),
    );
    for (const app of [one, two, three]) app.close();
  });

  it('reports connections', async () => {
    for (const { name, make: makeApp, request } of faces) {
      const counts = [];
      let ended;
      const end = new Promise((resolve) => (ended = resolve));
      const app = makeApp()
        .filter((connection, count) => {
          counts.push([
            count,
            Buffer.from(connection.getRemoteAddressAsText()).toString(),
            connection.getRemotePort() > 0,
          ]);
          if (count < 0) ended();
        })
        .get('/*', (res) => res.end());
      await request(listening(app));
      await end;
      assert.deepEqual(
        counts,
        [
          [1, '127.0.0.1', true],
          [-1, '127.0.0.1', true],
        ],
        name,
      );
      app.close();
    }
  });
});

describe('closing', () => {
  it('ends all requests at once and notifies handlers', async () => {
    for (const { name, make: makeApp, request } of faces) {
      let aborted;
      const hasAborted = new Promise((resolve) => (aborted = resolve));
      let arrived;
      const hasArrived = new Promise((resolve) => (arrived = resolve));
      const app = makeApp().get('/*', (res) => {
        res.onAborted(aborted);
        arrived();
      });
      const waiting = request(listening(app));
      await hasArrived;
      assert.equal(app.close(), app);
      await hasAborted;
      assert.ok((await waiting).error, name);
    }
  });

  it('completes running requests within the given time', async () => {
    for (const { name, make: makeApp, request } of faces) {
      let respond;
      let arrived;
      const hasArrived = new Promise((resolve) => (arrived = resolve));
      const app = makeApp().get('/*', (res) => {
        res.onAborted(() => {});
        respond = () => res.end('finished');
        arrived();
      });
      const port = listening(app);
      const waiting = request(port);
      await hasArrived;
      const closed = app.close({ timeout: 30_000 });
      respond();
      assert.equal(text(await waiting), 'finished', name);
      await closed;
      // UDP reports no closed port: the client times out.
      assert.ok((await request(port, { idle_timeout: 1 })).error, name);
    }
  });

  it('does not wait longer than the given time', async () => {
    for (const { make: makeApp, request } of faces) {
      let arrived;
      const hasArrived = new Promise((resolve) => (arrived = resolve));
      let aborted;
      const hasAborted = new Promise((resolve) => (aborted = resolve));
      const app = makeApp().get('/*', (res) => {
        res.onAborted(aborted);
        arrived();
      });
      const waiting = request(listening(app));
      await hasArrived;
      await app.close({ timeout: 1 });
      await hasAborted;
      assert.ok((await waiting).error);
    }
  });
});

describe('a handler', () => {
  it('may close its own app', async () => {
    for (const { name, make: makeApp, request } of faces) {
      let isClosed;
      const closed = new Promise((resolve) => (isClosed = resolve));
      const app = makeApp().get('/*', (res) => {
        res.end('last');
        app.close({ timeout: 30_000 }).then(isClosed);
      });
      assert.equal(text(await request(listening(app))), 'last', name);
      await closed;
    }
  });

  it('may exit the process', () => {
    const code = `
      const uWS = require('pronghorn');
      uWS.App().get('/*', () => process.exit(7)).listen('127.0.0.1', 0, (socket) => {
        fetch('http://127.0.0.1:' + uWS.us_socket_local_port(socket)).catch(() => {});
      });
    `;
    const result = spawnSync(process.execPath, ['--eval', code], {
      cwd: path.join(__dirname, '..'),
      encoding: 'utf8',
    });
    assert.deepEqual([result.status, result.signal, result.stderr], [7, null, '']);
  });

  it('may listen and respond through its own listener', async () => {
    const inner = uWS.App().get('/*', (res) => res.end('inner'));
    const outer = uWS.App().get('/*', (res) => {
      res.onAborted(() => {});
      clear(listening(inner)).then((answer) => res.end(`${text(answer)} through outer`));
    });
    assert.equal(text(await clear(listening(outer))), 'inner through outer');
    inner.close();
    outer.close();
  });
});

describe('invalid use', () => {
  it('is rejected with what to do', () => {
    const app = uWS.App();
    const cases = [
      [
        () => uWS.SSLApp({ key_file: 'x' }),
        /SSLApp has no option "key_file"; did you mean "key_file_name"\?/,
      ],
      [() => uWS.SSLApp({ certfilename: 'x' }), /did you mean "cert_file_name"\?/],
      [
        () => uWS.App({ zzzzzzzzzzzz: 1 }),
        /App has no option "zzzzzzzzzzzz": it has key_file_name, /,
      ],
      [
        () => uWS.SSLApp({ key_file_name: tls.key_file_name }),
        /SSLApp has no certificate: add cert_file_name/,
      ],
      [() => uWS.App({ limits: { idle_timeuot: '5s' } }), /idle.timeout/],
      [() => uWS.App(5), /App takes an object of options, not number/],
      [
        () => uWS.SSLApp({}),
        /SSLApp has no certificate: give key_file_name and cert_file_name.*without_certificate: true/,
      ],
      [() => uWS.Server({ limits: {} }), /Server has no certificate/],
      [() => uWS.H3App(), /H3App has no certificate/],
      [
        () => uWS.SSLApp({ without_certificate: true }).listen(0),
        /there is no certificate: give key_file_name/,
      ],
      [() => app.get('users', () => {}), /a pattern that begins with a slash.*not "users"/],
      [() => app.get('/users'), /app\.get\('\/users'\) takes a function, not undefined/],
      [() => app.listen('soon', () => {}), /takes a port from 0 to 65535, not "soon"/],
      [
        () => app.listen('70000', uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, () => {}),
        /takes a port from 0 to 65535, not 70000/,
      ],
      [() => app.listen('::1', 'soon', () => {}), /takes a port from 0 to 65535, not "soon"/],
      [() => app.listen(70000, () => {}), /takes a port from 0 to 65535, not 70000/],
      [() => app.close({ timeout: 'soon' }), /takes \{ timeout \}, a number of milliseconds/],
      [
        () => app.addServerName('x').setCertificate(tls),
        /an App has no TLS: use SSLApp, H3App or Server/,
      ],
      [
        () => uWS.us_listen_socket_close({}),
        /takes the socket that listen\(\) passed to its callback/,
      ],
    ];
    for (const [action, message] of cases) assert.throws(action, message, String(action));
  });

  it("of a certificate is rejected with the program's name for the option", () => {
    const other = make('a.test');
    const [key, cert] = [
      fs.readFileSync(tls.key_file_name, 'utf8'),
      fs.readFileSync(tls.cert_file_name, 'utf8'),
    ];
    const pem = (name) => fs.readFileSync(other[`${name}_file_name`], 'utf8');
    const locked = make('locked', 'secret');
    const [missing, garbage] = [path.join(folder, 'missing.pem'), path.join(folder, 'garbage.pem')];
    fs.writeFileSync(garbage, '-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n');
    const both =
      'give the certificate chain as cert_file_name or cert, and its key as key_file_name or key, both in PEM form';
    const cases = [
      [
        { ...tls, key_file_name: missing },
        `${missing}: No such file or directory (os error 2): check the path`,
      ],
      [
        { ...tls, cert_file_name: missing },
        `${missing}: No such file or directory (os error 2): check the path`,
      ],
      [
        { ...tls, key_file_name: tls.cert_file_name },
        `${tls.cert_file_name}: contains no private key in PEM form: ${both}`,
      ],
      [{ key: 'no key', cert }, `the key: contains no private key in PEM form: ${both}`],
      [
        { key, cert: 'none' },
        `the certificate chain: contains no certificate in PEM form: ${both}`,
      ],
      [
        { key: 'no key', cert: 'none' },
        `the certificate chain: contains no certificate in PEM form: ${both}; the key: contains no private key in PEM form: ${both}`,
      ],
      [
        { ...tls, key_file_name: other.key_file_name },
        `${tls.cert_file_name} and ${other.key_file_name}: the key does not belong to the certificate: give the key that belongs to the certificate`,
      ],
      [
        { key: pem('key'), cert },
        'the certificate chain and the key: the key does not belong to the certificate: give the key that belongs to the certificate',
      ],
      [
        locked,
        `${locked.key_file_name}: the key is encrypted with a passphrase: give it as passphrase`,
      ],
    ];
    const doors = {
      SSLApp: (given) => uWS.SSLApp(given),
      'createServer()': (given) => createServer(given),
      'app.setCertificate()': (given) => uWS.SSLApp(tls).setCertificate(given),
      'app.addServerName()': (given) => uWS.SSLApp(tls).addServerName('a.test', given),
      Server: (given) => serve({ ...given, fetch: () => {}, port: 0 }),
    };
    for (const [kind, door] of Object.entries(doors)) {
      for (const [given, message] of cases)
        assert.throws(() => door(given), { message: `${kind}: ${message}` });
      assert.throws(
        () => door({ ...tls, key_file_name: garbage }),
        /garbage\.pem: contains no usable private key/,
      );
      assert.throws(
        () => door({ ...locked, passphrase: 'wrong' }),
        /locked-locked-key\.pem: the passphrase does not open the key/,
      );
    }
    uWS.SSLApp({ ...locked, passphrase: 'secret' });
  });

  it('of a response is rejected with what to do, and the client gets a response', async () => {
    const cases = [
      [(res) => res.writeStatus('OK'), /invalid status "OK": write it as '404 Not Found'/],
      [(res) => res.writeStatus('103 Early Hints'), /for 103, call res\.writeEarlyHints\(\)/],
      [
        (res) => res.writeHeader('x', 'a\r\nset-cookie: b'),
        /invalid value of header x: .* contains a control character/,
      ],
      [(res) => res.writeHeader('a b', 'c'), /invalid header name "a b"/],
      [
        (res) => res.writeHeader('x', 5),
        /takes a string, an ArrayBuffer or a typed array, not number: write String\(value\)/,
      ],
      [(res) => res.end({}), /not object: write String\(value\) or JSON\.stringify\(value\)/],
      [(res) => res.tryEnd('x', -1), /takes the size of the whole body/],
      [(res) => res.onAborted('x'), /res\.onAborted\(\) takes a function, not string/],
    ];
    const reported = [];
    const app = uWS.App({ onError: (error) => reported.push(error.message) });
    cases.forEach(([action], index) => app.get(`/${index}`, (res) => action(res)));
    const port = listening(app);
    for (const [index, [, message]] of cases.entries()) {
      assert.equal((await clear(port, { path: `/${index}` })).status, 500);
      assert.match(reported.at(-1), message);
    }
    assert.equal(reported.length, cases.length);
    app.close();
  });
});

describe('DeclarativeResponse', () => {
  it('responds from the request without running JavaScript', async () => {
    const program = new uWS.DeclarativeResponse()
      .writeHeader('x-kind', 'declared')
      .write('id ')
      .writeParameterValue('id')
      .write(', q ')
      .writeQueryValue('q')
      .write(', agent ')
      .writeHeaderValue('user-agent')
      .end('.');
    const echo = new uWS.DeclarativeResponse().writeBody().end('!');
    for (const { name, make: makeApp, request } of faces) {
      const app = makeApp().get('/users/:id', program).post('/echo', echo);
      const port = listening(app);
      const answer = await request(port, {
        path: '/users/7?q=a%20b',
        headers: { 'user-agent': 'test' },
      });
      assert.equal(text(answer), 'id 7, q a b, agent test.', name);
      assert.equal(answer.fields['x-kind'], 'declared');
      assert.equal(
        text(await request(port, { path: '/echo', method: 'POST', body: 'x'.repeat(5000) })),
        `${'x'.repeat(5000)}!`,
      );
      app.close();
    }
    assert.throws(
      () => uWS.App().get('/', new ArrayBuffer(2)),
      /the DeclarativeResponse is truncated/,
    );
  });
});

describe('threads', () => {
  const worker = path.join(__dirname, 'support', 'worker.js');
  const start = (port, kind) =>
    new Promise((resolve, reject) => {
      const thread = new Worker(worker, { workerData: { port, kind, tls } });
      thread.once('message', (bound) => resolve({ thread, bound }));
      thread.once('error', reject);
    });

  it('share a port over TCP, and start and stop without a crash', async () => {
    const first = await start(0, 'App');
    const others = await Promise.all([1, 2].map(() => start(first.bound, 'App')));
    const seen = new Set();
    for (let round = 0; round < 60; round++) seen.add(text(await clear(first.bound)));
    assert.ok(seen.size > 1, [...seen].join());
    await Promise.all([first, ...others].map(({ thread }) => thread.terminate()));
    const again = await start(first.bound, 'App');
    assert.match(text(await clear(again.bound)), /thread/);
    again.thread.postMessage('close');
    assert.equal(await new Promise((resolve) => again.thread.once('exit', resolve)), 0);
  });

  it('share a port over QUIC: a connection stays on its thread', async () => {
    const first = await start(0, 'H3App');
    const second = await start(first.bound, 'H3App');
    const seen = new Set();
    for (let round = 0; round < 12; round++) {
      const connection = `threads-${round}`;
      const one = await h3.request(first.bound, { connection });
      const other = await h3.request(first.bound, { connection });
      assert.ok(one.body && one.body.equals(other.body), one.error ?? other.error);
      seen.add(text(one));
    }
    assert.equal(seen.size, 2, [...seen].join());
    await Promise.all([first.thread.terminate(), second.thread.terminate()]);
  });
});

describe('memory', () => {
  it('retains nothing of completed requests', async () => {
    const native = require('../lib/native');
    const app = uWS
      .App()
      .get('/*', (res) => res.end('x'))
      .post('/*', (res) => {
        res.onAborted(() => {});
        res.onData((_chunk, isLast) => isLast && res.end('y'));
      });
    const port = listening(app);
    const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
    const one = (method) =>
      new Promise((resolve, reject) => {
        const request = http.request({ port, host: '127.0.0.1', method, agent }, (response) =>
          response.resume().on('end', resolve),
        );
        request.on('error', reject);
        request.end(method === 'POST' ? 'content' : undefined);
      });
    for (let round = 0; round < 50; round++)
      await Promise.all(
        Array.from({ length: 16 }, (_, index) => one(index % 2 === 0 ? 'GET' : 'POST')),
      );
    await released(native.openExchanges);
    agent.destroy();
    app.close();
  });
});
