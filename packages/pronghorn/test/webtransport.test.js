'use strict';

// WebTransport sessions, with an independent client.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const path = require('node:path');
const { describe, it } = require('node:test');
const { promisify } = require('node:util');
const uWS = require('..');
const native = require('../lib/native');
const { tls } = require('./support/certificate');
const { listening, released } = require('./support/clients');
const { python } = require('./support/h3');

const client = path.join(__dirname, 'support', 'webtransport_client.py');
const text = (content) => Buffer.from(content).toString();

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

for (const kind of ['H3App', 'Server']) {
  describe(`WebTransport over ${kind}`, () => {
    it('has streams and datagrams, and ends with a reason', async () => {
      const log = [];
      const reports = [];
      let isOver;
      const over = new Promise((resolve) => (isOver = resolve));
      const app = uWS[kind]({
        ...tls,
        onError: (error, where) => reports.push([where, error.message]),
      })
        .wt('/echo', {
          upgrade: (res, req, context) => res.upgrade({ user: req.getQuery('user') }, context),
          open: (session) =>
            log.push(['open', session.user, text(session.getRemoteAddressAsText())]),
          async stream(session, stream) {
            if (!stream.writable) {
              const content = await collect(stream);
              return session.createUnidirectionalStream().end(`${content}, and back`);
            }
            stream.on('error', (error) => log.push(['error', error.code, error.streamErrorCode]));
            stream.once('data', (chunk) => {
              if (text(chunk) !== 'reset me') return;
              stream.resetCode = 9;
              stream.destroy();
            });
            return stream.pipe(stream);
          },
          datagram(session, data) {
            assert.ok(session.getMaxDatagramSize() > 1000);
            assert.equal(session.sendDatagram(Buffer.alloc(100_000)), false);
            assert.equal(session.sendDatagram(data), true);
          },
          close(session, code, reason) {
            log.push(['close', code, text(reason), session._streams.size]);
            assert.throws(
              () => session.sendDatagram('x'),
              /on a WebTransport session that is closed/,
            );
            throw new Error('reported');
          },
        })
        .wt('/greet', {
          open(session) {
            session.createUnidirectionalStream().end('greetings');
            const question = session.createBidirectionalStream();
            question.write('who is there?');
            collect(question).then((answer) => session.close(1234, answer));
          },
          close: (_session, code, reason) => log.push(['close', code, text(reason)]),
        })
        .wt('/refused', { upgrade: (res) => res.writeStatus('403 Forbidden').end() })
        .wt('/later', {
          async upgrade(res, req, context) {
            res.onAborted(() => {});
            await new Promise((resolve) => setTimeout(resolve, 5));
            res.upgrade({}, context);
          },
          close: (_session, code) => isOver(code),
        });
      const port = listening(app);
      const { stdout } = await promisify(execFile)(
        python,
        [client, String(port), tls.cert_file_name],
        {
          timeout: 300_000,
        },
      );
      assert.deepEqual(JSON.parse(stdout), {
        echoed: [true, true, true, true, true],
        uni: [[3, 'one way, and back']],
        datagrams: ['datagram'],
        reset: true,
        greetings: ['greetings', 'who is there?'],
        closed: [1234, 'nobody, grüße'],
        refused: 403,
        nowhere: 404,
      });
      assert.equal(await over, 0);
      assert.deepEqual(log, [
        ['open', 'alice', '127.0.0.1'],
        ['error', 'ERR_WEBTRANSPORT_STREAM', 7],
        ['close', 4000, 'done here', 0],
        ['close', 1234, 'nobody, grüße'],
      ]);
      assert.deepEqual(reports, [['wt /echo', 'reported']]);
      app.close();
    });
  });
}

/** Runs one of the client's scenes and returns what the client observed. */
async function play(port, scene) {
  const { stdout } = await promisify(execFile)(
    python,
    [client, String(port), tls.cert_file_name, scene],
    {
      timeout: 300_000,
    },
  );
  return JSON.parse(stdout);
}

describe('WebTransport streams', () => {
  it('are still read when the client stops reading what is sent', async () => {
    const log = [];
    const app = uWS.H3App(tls).wt('/half', {
      async stream(session, stream) {
        stream.on('error', (error) => log.push(['error', error.streamErrorCode]));
        stream.on('stopped', (error) => {
          log.push([
            'stopped',
            error.code,
            error.streamErrorCode,
            stream.writable,
            stream.destroyed,
          ]);
          const isTaken = stream.write('nobody reads this', (failure) => {
            log.push(['write', failure === error, isTaken]);
            stream.end('nor this', (second) => {
              log.push(['end', second === error]);
              session.sendDatagram('stopped');
            });
          });
        });
        stream.write('here');
        const content = await collect(stream);
        log.push(['read', content]);
        session.sendDatagram(content);
      },
    });
    const port = listening(app);
    assert.deepEqual((await play(port, 'stop')).told, ['stopped', 'first, second']);
    assert.deepEqual(log, [
      ['stopped', 'ERR_WEBTRANSPORT_STREAM', 5, false, false],
      ['write', true, false],
      ['end', true],
      ['error', 5],
      ['read', 'first, second'],
    ]);
    await released(native.openStreams);
    app.close();
  });

  it('end when their data could only be echoed to a client that stopped reading', async () => {
    const app = uWS.H3App(tls).wt('/mirror', {
      stream(session, stream) {
        stream.on('error', (error) => session.sendDatagram(`ended by ${error.streamErrorCode}`));
        stream.pipe(stream);
      },
    });
    const port = listening(app);
    assert.deepEqual((await play(port, 'mirror')).told, ['ended by 6']);
    await released(native.openStreams);
    app.close();
  });

  it('report errors thrown by their listeners, with the stack, and the session continues', async (t) => {
    const reports = [];
    const uncaught = t.mock.method(console, 'error', () => {});
    const app = uWS
      .H3App({
        ...tls,
        onError: (error, where) =>
          reports.push([where, error.message, error.stack.includes('webtransport.test.js')]),
      })
      .wt('/throws', {
        stream(session, stream) {
          stream.on('data', () => {
            throw new Error('by data');
          });
          stream.on('end', () => {
            session.sendDatagram('ended');
            throw new Error('by end');
          });
          stream.write('x', () => {
            throw new Error('by write');
          });
          // Continues although a callback has thrown.
          stream.end(() => {
            throw new Error('by finish');
          });
        },
      });
    const port = listening(app);
    assert.deepEqual((await play(port, 'throw')).told, ['ended', 'ended']);
    const sorted = reports.map((report) => report.join(' ')).sort();
    assert.deepEqual(
      sorted,
      ['data', 'end', 'finish', 'write'].flatMap((by) => Array(2).fill(`wt /throws by ${by} true`)),
    );
    assert.equal(uncaught.mock.callCount(), 0);
    app.close();
  });

  it('leave nothing behind when their session ends with the packet that opens them', async () => {
    let isOver;
    const over = new Promise((resolve) => (isOver = resolve));
    const app = uWS.H3App(tls).wt('/cut', {
      stream: (_session, stream) => stream.resume(),
      close: (_session, code) => isOver(code),
    });
    const port = listening(app);
    await play(port, 'cut');
    assert.equal(await over, 3);
    await released(native.openStreams);
    app.close();
  });
});

describe('WebTransport', () => {
  it('ends with its app', async () => {
    let isOver;
    const over = new Promise((resolve) => (isOver = resolve));
    const app = uWS.H3App(tls).wt('/echo', {
      stream: (session, stream) =>
        stream.pipe(stream.writable ? stream : session.createUnidirectionalStream()),
      datagram: () => app.close(),
      close: (session, code, reason) => isOver([code, text(reason), session._streams.size]),
    });
    const port = listening(app);
    // Its client waits in vain for the datagram.
    const child = execFile(python, [client, String(port), tls.cert_file_name, 'echo'], () => {});
    assert.deepEqual(await over, [0, '', 0]);
    child.kill();
  });

  it('rejects invalid input', () => {
    const app = uWS.H3App(tls);
    const cases = [
      [
        () => uWS.SSLApp(tls).wt('/*', {}),
        /app\.wt\(\) needs HTTP\/3: use H3App or Server, not SSLApp/,
      ],
      [() => app.wt('/*', { datagrams() {} }), /no handler "datagrams"; did you mean "datagram"\?/],
      [() => app.wt('/*', { open: 1 }), /app\.wt\(\): open takes a function, not number/],
      [() => app.wt('/*'), /takes an object of handlers, not undefined/],
    ];
    for (const [action, message] of cases) assert.throws(action, message, String(action));
    const late = uWS.H3App(tls);
    listening(late);
    assert.throws(() => late.wt('/*', {}), /called first after app\.listen\(\)/);
    late.close();
  });
});
