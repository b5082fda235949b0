'use strict';

// Defects of the H3App of uWebSockets.js, one test each, with aioquic, a strict client.

const assert = require('node:assert/strict');
const { spawnSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const uWS = require('..');
const { make, tls, folder } = require('./support/certificate');
const { request } = require('./support/h3');
const { listening } = require('./support/clients');

describe('H3App', () => {
  let app;
  let port;
  let aborted;
  const hasAborted = new Promise((resolve) => (aborted = resolve));
  before(() => {
    app = uWS
      .H3App(tls)
      .get('/static', (res) => res.end('static'))
      .get('/status', (res) => res.writeStatus('418 I am a teapot').end())
      .get('/headers', (res, req) => {
        for (let index = 0; index < 300; index++)
          res.writeHeader(`x-${index}`, `${index}`.repeat(10));
        res.end(req.getHeader('user-agent'));
      })
      .get('/wait', (res) => res.onAborted(aborted))
      .get('/written', (res) => {
        res.onAborted(() => {});
        res.write('one, ');
        res.write('two');
        res.end();
      });
    port = listening(app);
  });
  after(() => app.close());

  const text = (answer) => answer.body?.toString();

  it('has get(), and returns the app from it', async () => {
    assert.equal(
      app.get('/another', (res) => res.end('another')),
      app,
    );
    assert.equal(text(await request(port, { path: '/another' })), 'another');
  });

  it('sends a :status of three digits', async () => {
    // A status with a reason phrase makes this client close the connection.
    assert.equal((await request(port, { path: '/status' })).status, 418);
    assert.equal((await request(port, { path: '/static' })).status, 200);
  });

  it('sends any number of headers, and no others', async () => {
    const { headers } = await request(port, { path: '/headers' });
    const own = headers.filter(([name]) => name.startsWith('x-'));
    assert.deepEqual(
      own,
      Array.from({ length: 300 }, (_, index) => [`x-${index}`, `${index}`.repeat(10)]),
    );
    const others = headers.map(([name]) => name).filter((name) => !name.startsWith('x-'));
    assert.deepEqual(others.toSorted(), ['alt-svc', 'content-length', 'date']);
  });

  it('accepts a request header of 5 KB and keeps serving', async () => {
    const headers = { 'x-large': 'x'.repeat(5000) };
    assert.equal(text(await request(port, { path: '/static', headers })), 'static');
    assert.equal(text(await request(port, { path: '/static' })), 'static');
  });

  it('rejects an oversized request header and keeps serving', async () => {
    const answer = await request(port, {
      path: '/static',
      headers: { 'x-large': 'x'.repeat(300_000) },
    });
    assert.ok(answer.error || answer.status === 431, JSON.stringify(answer.status));
    assert.equal(text(await request(port, { path: '/static' })), 'static');
  });

  it('has req.getHeader()', async () => {
    assert.equal(
      text(await request(port, { path: '/headers', headers: { 'user-agent': 'test' } })),
      'test',
    );
  });

  it('routes by the path without its query', async () => {
    assert.equal(text(await request(port, { path: '/static?a=1&b=/x' })), 'static');
  });

  it('responds with 404 where no route matches', async () => {
    assert.equal((await request(port, { path: '/nowhere' })).status, 404);
  });

  it('calls onAborted when the client disconnects', async () => {
    assert.equal((await request(port, { path: '/wait', abort: 'now' })).aborted, true);
    await hasAborted;
  });

  it('sends written data', async () => {
    assert.equal(text(await request(port, { path: '/written' })), 'one, two');
  });

  it('serves more than 200 requests on one connection', async () => {
    for (let round = 0; round < 5; round++) {
      const wanted = { path: '/static', connection: 'long' };
      const answers = await Promise.all(Array.from({ length: 100 }, () => request(port, wanted)));
      for (const answer of answers) assert.equal(text(answer), 'static', answer.error);
    }
  });

  it('stops listening without a crash, and its connections continue', async () => {
    let socket;
    const other = uWS.H3App(tls).get('/*', (res) => res.end('here'));
    other.listen('127.0.0.1', 0, (token) => (socket = token));
    const at = uWS.us_socket_local_port(socket);
    const kept = { path: '/', connection: 'kept' };
    assert.equal(text(await request(at, kept)), 'here');
    uWS.us_listen_socket_close(socket);
    assert.equal(text(await request(at, kept)), 'here');
    assert.ok((await request(at, { path: '/' })).error);
    other.close();
    assert.equal(uWS.us_socket_local_port(socket), -1);
  });

  it('accepts a key with or without a passphrase, and an unneeded passphrase', async () => {
    const locked = make('locked', '1234');
    for (const options of [
      tls,
      { ...locked, passphrase: '1234' },
      { ...tls, passphrase: '1234' },
    ]) {
      const one = uWS.H3App(options).get('/*', (res) => res.end('ok'));
      assert.equal(text(await request(listening(one), {})), 'ok');
      one.close();
    }
    assert.throws(
      () => uWS.H3App(locked),
      /the key is encrypted with a passphrase: give it as passphrase/,
    );
  });
});

describe('the program of the article', () => {
  const program = `
    const uWS = require('uWebSockets.js');
    uWS.H3App({ key_file_name: './key.pem', cert_file_name: './cert.pem' }).get('/*', (res, req) => {
      res.end('H3llo World from Node.js!');
    }).listen(9004, (listenSocket) => {
      if (listenSocket) { console.log('Listening to port 9004!'); }
    });
  `;

  it('runs as printed, over IPv4 and IPv6, and prints nothing else', async () => {
    const home = path.join(folder, 'article');
    fs.mkdirSync(path.join(home, 'node_modules'), { recursive: true });
    fs.symlinkSync(path.join(__dirname, '..'), path.join(home, 'node_modules', 'uWebSockets.js'));
    fs.copyFileSync(tls.key_file_name, path.join(home, 'key.pem'));
    fs.copyFileSync(tls.cert_file_name, path.join(home, 'cert.pem'));
    fs.writeFileSync(path.join(home, 'article.js'), program);
    const child = spawn(process.execPath, ['article.js'], {
      cwd: home,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    const ended = new Promise((resolve) => child.on('exit', resolve));
    await new Promise((resolve) => {
      child.stdout.on('data', (chunk) => {
        output += chunk;
        resolve();
      });
      ended.then(resolve);
    });
    try {
      for (const address of ['127.0.0.1', '::1']) {
        const answer = await request(9004, { path: '/any/path?x=1', address });
        assert.equal(answer.body?.toString(), 'H3llo World from Node.js!', answer.error);
      }
    } finally {
      child.kill();
      await ended;
    }
    assert.equal(output, 'Listening to port 9004!\n');
  });

  it('can be loaded with import', () => {
    const code =
      "import uWS, { H3App } from 'pronghorn'; console.log(typeof uWS.H3App, H3App === uWS.H3App, Object.keys(uWS).length)";
    const result = spawnSync(process.execPath, ['--input-type=module', '--eval', code], {
      cwd: path.join(__dirname, '..'),
      encoding: 'utf8',
    });
    assert.equal(result.stdout, `function true ${Object.keys(uWS).length}\n`, result.stderr);
  });
});
