'use strict';

// Runs every example and checks its behaviour.

const assert = require('node:assert/strict');
const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { it } = require('node:test');
const { promisify } = require('node:util');
const { tls, folder } = require('./support/certificate');
const { python } = require('./support/h3');
const { open } = require('./support/websocket');
const { faces, freePort, overHttp2, overHttp3, secure } = require('./support/clients');

const clear = faces[0].request;
const text = (answer) => answer.body?.toString() ?? answer.error;
const examples = path.join(__dirname, '..', 'examples');

const home = path.join(folder, 'examples');
fs.mkdirSync(home);
fs.copyFileSync(tls.key_file_name, path.join(home, 'key.pem'));
fs.copyFileSync(tls.cert_file_name, path.join(home, 'cert.pem'));

const get = async (port, target, expected) =>
  assert.equal(text(await clear(port, { path: target })), expected);

const checks = {
  'hello.js': (port) => get(port, '/', 'hello'),
  'module.mjs': (port) => get(port, '/', 'hello'),
  'http3.js': async (port) => assert.equal(text(await overHttp3(port)), 'hello over h3'),
  'all-protocols.js': async (port) => {
    const answers = await Promise.all(
      [secure, overHttp2, overHttp3].map((request) => request(port)),
    );
    assert.deepEqual(answers.map(text), ['hello over http/1.1', 'hello over h2', 'hello over h3']);
  },
  'router.js': async (port) => {
    await get(port, '/users/7?page=2', 'user 7, page 2');
    await get(port, '/users/me', 'you');
    await get(port, '/files/a/b', 'file /files/a/b');
    await get(port, '/', 'nothing here');
    assert.equal((await clear(port, { path: '/users/7', method: 'DELETE' })).status, 404);
    assert.equal(
      text(
        await clear(port, { path: '/users/7', method: 'DELETE', headers: { authorization: 'x' } }),
      ),
      'deleted',
    );
  },
  'async.js': (port) => get(port, '/it', 'found it'),
  'json-post.js': async (port) => {
    assert.equal(
      text(await clear(port, { path: '/json', method: 'POST', body: '{"name":"you"}' })),
      '{"hello":"you"}',
    );
    assert.equal(
      (await clear(port, { path: '/json', method: 'POST', body: 'x'.repeat(70_000), pieces: 2 }))
        .status,
      413,
    );
    assert.equal(
      (await clear(port, { path: '/json', method: 'POST', body: 'no json' })).status,
      500,
    );
  },
  'upload.js': async (port) => {
    const body = Buffer.alloc(3_000_000, 'upload ');
    assert.equal(
      text(await clear(port, { path: '/upload', method: 'POST', body, pieces: 30 })),
      'stored 3000000 bytes',
    );
    assert.ok(fs.readFileSync(path.join(home, 'upload.bin')).equals(body));
  },
  'file.js': async (port) => {
    const { body } = await clear(port, { path: '/file' });
    assert.ok(body.equals(fs.readFileSync(process.execPath).subarray(0, 5_000_000)));
  },
  'server-sent-events.js': async (port, child, output) => {
    /** A client: `seen` resolves after some events, `ended` with everything received. */
    const client = () => {
      const begun = {};
      begun.seen = new Promise((resolve) => {
        begun.request = http.get({ port, path: '/events' }, (response) => {
          assert.equal(response.headers['content-type'], 'text/event-stream');
          let received = '';
          response.on('data', (chunk) => {
            received += chunk;
            if (received.includes('data: 2\n\n')) resolve();
          });
          begun.ended = new Promise((end) => {
            response.on('error', (error) => end(error.message));
            response.on('end', () => end(received));
          });
        });
      });
      return begun;
    };
    const [leaving, staying] = [client(), client()];
    await Promise.all([leaving.seen, staying.seen]);
    leaving.request.destroy();
    const ended = new Promise((resolve) => child.on('exit', resolve));
    child.kill('SIGTERM');
    assert.match(await staying.ended, /data: 2\n\n[^]*event: bye\ndata:\n\n$/);
    assert.equal(await ended, 0);
    assert.match(output(), /ended/);
  },
  'early-hints.js': async (port) => {
    const answer = await clear(port);
    assert.deepEqual(answer.informational[0].fields, {
      link: '</style.css>; rel=preload; as=style',
    });
  },
  'multipart.js': async (port) => {
    const form = new FormData();
    form.append('a', 'text');
    form.append('b', new Blob(['12345']), 'file.txt');
    const response = await fetch(`http://127.0.0.1:${port}/form`, { method: 'POST', body: form });
    assert.equal(await response.text(), 'a: 4 bytes\nb: 5 bytes');
  },
  'declarative.js': (port) => get(port, '/hello/you', 'hello you!'),
  'server-names.js': async (port) => {
    assert.equal(text(await secure(port, { host: 'blog.example' })), 'the blog');
    assert.equal(text(await secure(port, { host: 'shop.example' })), 'everything else');
  },
  'graceful-shutdown.js': async (port, child, output) => {
    const waiting = clear(port, { path: '/slow' });
    // The request has arrived when a later one has been answered.
    await clear(port, { path: '/' });
    const ended = new Promise((resolve) => child.on('exit', resolve));
    child.kill('SIGTERM');
    assert.equal(text(await waiting), 'finished');
    assert.equal(await ended, 0);
    assert.match(output(), /ended/);
  },
  'certificates.js': async (port, child) => {
    assert.equal(text(await secure(port)), 'hello');
    child.kill('SIGHUP');
    assert.equal(text(await secure(port)), 'hello');
  },
  'development.js': async (port, _child, output) => {
    const answers = await Promise.all(
      [secure, overHttp2, overHttp3].map((request) => request(port)),
    );
    assert.deepEqual(answers.map(text), ['hello over http/1.1', 'hello over h2', 'hello over h3']);
    assert.match(output(), /chromium .*--ignore-certificate-errors-spki-list=\S{44} /);
  },
  'statistics.js': async (port) => {
    const seen = JSON.parse(text(await clear(port, { path: '/statistics' })));
    assert.deepEqual([seen.open, seen.requests_http1], [1, 1]);
  },
  'webtransport.js': async (port) => {
    const client = path.join(__dirname, 'support', 'webtransport_client.py');
    const { stdout } = await promisify(execFile)(python, [
      client,
      String(port),
      tls.cert_file_name,
      'echo',
    ]);
    assert.deepEqual(JSON.parse(stdout), {
      echoed: [true, true, true, true],
      uni: [[3, 'one way']],
      datagrams: ['datagram'],
    });
  },
  'websocket.js': async (port) => {
    const clients = [];
    for (const protocol of ['http/1.1', 'h2', 'h3'])
      clients.push(await open(port, { protocol, secure: true }));
    clients[1].command({ text: 'to all' });
    for (const ws of clients) assert.equal(await ws.text(), 'to all');
  },
  'threads.js': async (port) => assert.match(text(await clear(port)), /^thread \d+$/),
  'cluster.js': async (port) => assert.match(text(await clear(port)), /^process \d+$/),
  'fetch.js': (port) => get(port, '/', 'GET over http/1.1'),
  'hono.mjs': (port) => get(port, '/', 'hello over http/1.1'),
  'h3.mjs': (port) => get(port, '/', 'hello 127.0.0.1'),
  'express.js': (port) => get(port, '/', 'hello over HTTP/1.1'),
  'fastify.js': (port) => get(port, '/', '{"hello":"world"}'),
  'errors.js': async (port, _child, output) => {
    assert.equal((await clear(port)).status, 500);
    while (!output().includes('GET /: no idea'))
      await new Promise((resolve) => setImmediate(resolve));
  },
};

// The examples in folders have tests of their own.
for (const { name } of fs
  .readdirSync(examples, { withFileTypes: true })
  .filter((entry) => entry.isFile())) {
  it(name, async () => {
    const port = await freePort();
    const child = spawn(process.execPath, [path.join(examples, name)], {
      cwd: home,
      env: { ...process.env, PORT: String(port), XDG_DATA_HOME: folder },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const ended = new Promise((resolve) => child.on('exit', resolve));
    await new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (chunk) => {
          output += chunk;
          if (output.includes('listening')) resolve();
        });
      }
      ended.then(resolve);
    });
    try {
      assert.match(output, /listening/);
      assert.ok(name in checks, 'every example has a check');
      await checks[name](port, child, () => output);
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
  });
}
