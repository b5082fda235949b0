'use strict';

// WebSocket: the same handlers over all protocols, with an independent client.

const assert = require('node:assert/strict');
const net = require('node:net');
const { describe, it } = require('node:test');
const uWS = require('..');
const native = require('../lib/native');
const { faces, listening, released } = require('./support/clients');
const { open } = require('./support/websocket');

const text = (content) => Buffer.from(content).toString();

/** An ordered log of events that tests can wait for. */
class Log {
  constructor() {
    this.entries = [];
    this._waiting = [];
  }

  add(...entry) {
    this.entries.push(entry);
    this._waiting = this._waiting.filter(({ wanted, resolve }) => {
      if (!wanted(...entry)) return true;
      resolve(entry);
      return false;
    });
  }

  /** The first entry that begins with `name`. */
  async until(name, wanted = (first) => first === name) {
    return (
      this.entries.find((entry) => wanted(...entry)) ??
      new Promise((resolve) => this._waiting.push({ wanted, resolve }))
    );
  }
}

for (const face of faces) {
  const { name, protocol, make, request } = face;
  const client = { protocol, secure: name !== 'App' };
  const reports = [];
  const given = { onError: (error, where) => reports.push([where, error.message]) };

  /** An app with one route, its port and its log. */
  const serve = (behavior = {}, more = (app) => app) => {
    const log = new Log();
    const app = more(
      make(given).ws('/*', {
        close: (_ws, code, reason) => log.add('close', code, text(reason)),
        ...(typeof behavior === 'function' ? behavior(log) : behavior),
      }),
    );
    return { app, log, port: listening(app) };
  };

  describe(`WebSocket over ${name}`, () => {
    it('echoes messages of any size and type', async () => {
      const { app, port } = serve({
        maxPayloadLength: 1 << 20,
        maxBackpressure: 1 << 20,
        message: (ws, message, isBinary) => ws.send(message, isBinary),
      });
      const ws = await open(port, client);
      assert.equal(ws.status, protocol === 'http/1.1' ? 101 : 200, ws.error);
      for (const content of ['', 'x', 'κόσμε'.repeat(20), 'y'.repeat(70_000)]) {
        assert.equal(await ws.command({ text: content }).text(), content);
      }
      const bytes = Buffer.alloc(300_000, 'binary \0');
      const answer = await ws.command({ binary: bytes.toString('base64') }).next();
      assert.equal(answer.binary, true);
      assert.ok(answer.message.equals(bytes));
      assert.equal(
        await ws.command({ fragments: ['in ', 'three ', 'parts'] }).text(),
        'in three parts',
      );
      app.close();
    });

    it('exposes the whole request in upgrade, and passes user data on', async () => {
      const { app, log, port } = serve((log) => ({
        upgrade(res, req, context) {
          res
            .writeStatus('101 Switching Protocols')
            .writeHeader('x-own', 'yes')
            .upgrade(
              {
                url: req.getUrl(),
                query: req.getQuery('a'),
                header: req.getHeader('x-test'),
                over: req.getProtocol(),
              },
              req.getHeader('sec-websocket-key'),
              req.getHeader('sec-websocket-protocol'),
              req.getHeader('sec-websocket-extensions'),
              context,
            );
          // A handler that kept the request can still read it.
          log.add('after', req.getUrl());
          assert.throws(() => res.end(), /on a response that has ended/);
        },
        open(ws) {
          const { url, query, header, over } = ws.getUserData();
          ws.send(JSON.stringify({ url, query, header, over, direct: ws.url }));
          const address = [
            text(ws.getRemoteAddressAsText()),
            [...new Uint8Array(ws.getRemoteAddress())],
            ws.getRemotePort() > 0,
          ];
          ws.send(JSON.stringify([...address, ws.getProtocol(), ws.getProxiedRemotePort()]));
        },
      }));
      const headers = { 'x-test': 'header', 'sec-websocket-protocol': 'one, two' };
      const ws = await open(port, client, { path: '/chat/room?a=1', headers });
      assert.deepEqual([ws.fields['x-own'], ws.fields['sec-websocket-protocol']], ['yes', 'one']);
      assert.deepEqual(JSON.parse(await ws.text()), {
        url: '/chat/room',
        query: '1',
        header: 'header',
        over: protocol,
        direct: '/chat/room',
      });
      assert.deepEqual(JSON.parse(await ws.text()), [
        '127.0.0.1',
        [127, 0, 0, 1],
        true,
        protocol,
        0,
      ]);
      assert.deepEqual(log.entries[0], ['after', '/chat/room']);
      app.close();
    });

    it('upgrades later, or not at all', async () => {
      const { app, log, port } = serve((log) => ({
        upgrade(res, req, context) {
          if (req.getUrl() === '/refused') return res.writeStatus('403 Forbidden').end('no');
          // Over HTTP/2 and HTTP/3 a success status would accept the request.
          if (req.getUrl() === '/refused-with-200') return res.end('no');
          const fields = ['key', 'protocol', 'extensions'].map((field) =>
            req.getHeader(`sec-websocket-${field}`),
          );
          let isAborted = false;
          res.onAborted(() => {
            isAborted = true;
            log.add('aborted');
          });
          log.add('asked');
          if (req.getUrl() === '/never') return undefined;
          setTimeout(() => {
            if (!isAborted) res.cork(() => res.upgrade({ later: true }, ...fields, context));
          }, 5);
          return undefined;
        },
        open: (ws) => ws.send(`later ${ws.later}`),
      }));
      assert.equal(await (await open(port, client)).text(), 'later true');
      assert.equal((await open(port, client, { path: '/refused' })).status, 403);
      const refused = await open(port, client, { path: '/refused-with-200' });
      assert.equal(refused.status, protocol === 'http/1.1' ? 200 : 403);
      open(port, client, { path: '/never' });
      await log.until('asked', () => log.entries.filter(([what]) => what === 'asked').length === 2);
      app.close();
      await log.until('aborted');
    });

    it('rejects invalid upgrade requests', async () => {
      const { app, port } = serve({}, (more) =>
        more.get('/*', (res) => res.end('plain')).any('/*', (res) => res.end('any')),
      );
      assert.equal((await request(port)).body.toString(), 'plain');
      const refused = await open(port, client, { headers: { 'sec-websocket-version': '8' } });
      assert.equal(refused.status, 426);
      assert.equal(refused.fields['sec-websocket-version'], '13');
      if (protocol === 'http/1.1') {
        const headers = {
          connection: 'Upgrade',
          upgrade: 'websocket',
          'sec-websocket-version': '13',
        };
        assert.equal(
          (await request(port, { headers: { ...headers, 'sec-websocket-key': 'short' } })).status,
          400,
        );
        // These routes ignore upgrade requests for other protocols.
        assert.equal(
          (await request(port, { headers: { ...headers, upgrade: 'other' } })).body.toString(),
          'plain',
        );
      }
      app.close();
    });

    it('precedes other routes and yields to them', async () => {
      const app = make(given)
        .any('/*', (res) => res.writeStatus('418').end())
        .ws('/*', { open: (ws) => ws.send('all') })
        .ws('/rooms/:name', {
          upgrade(res, req, context) {
            if (req.getParameter(0) === 'closed') return req.setYield(true);
            if (req.getParameter('name') === 'none') return res.writeStatus('404').end();
            const fields = ['key', 'protocol', 'extensions'].map((field) =>
              req.getHeader(`sec-websocket-${field}`),
            );
            return res.upgrade({ room: req.getParameter(0) }, ...fields, context);
          },
          open: (ws) => ws.send(ws.room),
        });
      const port = listening(app);
      assert.equal(await (await open(port, client, { path: '/rooms/one' })).text(), 'one');
      assert.equal(await (await open(port, client, { path: '/rooms/closed' })).text(), 'all');
      assert.equal((await open(port, client, { path: '/rooms/none' })).status, 404);
      app.domain('localhost').ws('/own', { open: (ws) => ws.send('own') });
      assert.equal(await (await open(port, client, { path: '/own' })).text(), 'own');
      app.removeServerName('localhost').domain();
      assert.equal(await (await open(port, client, { path: '/own' })).text(), 'all');
      app.ws('/*', null);
      assert.equal((await open(port, client, { path: '/rooms/closed' })).status, 418);
      app.close();
    });

    it('closes with a code and a reason, from either side', async () => {
      const { app, log, port } = serve((log) => ({
        message(ws, message) {
          const wanted = JSON.parse(text(message));
          if (wanted === 'now') ws.close();
          else ws.end(...wanted);
          log.add('returned');
          assert.throws(
            () => ws.send('too late'),
            /ws\.send\(\) was called on a WebSocket that is closed.*drop your references to it in close/,
          );
          assert.equal(text(ws.getRemoteAddressAsText()), '127.0.0.1');
        },
      }));
      const cases = [
        [[4000, 'own reason'], 4000, 'own reason'],
        [[1001], 1001, ''],
        [[], 1005, ''],
      ];
      for (const [wanted, code, reason] of cases) {
        log.entries.length = 0;
        const ws = await open(port, client);
        assert.deepEqual(await ws.command({ text: JSON.stringify(wanted) }).next(), {
          closed: code,
          reason,
        });
        // The handler was called within `end`.
        assert.deepEqual(log.entries, [['close', wanted[0] ?? 0, reason], ['returned']]);
      }
      log.entries.length = 0;
      const dropped = await open(port, client);
      assert.equal((await dropped.command({ text: '"now"' }).next()).closed, 1006);
      assert.deepEqual(log.entries[0], ['close', 1006, '']);
      for (const close of [[4001, 'bye'], [1000, ''], []]) {
        log.entries.length = 0;
        const ws = await open(port, client);
        const ended = await ws.command({ close }).next();
        assert.equal(ended.closed, close[0] ?? 1005);
        assert.deepEqual(await log.until('close'), ['close', close[0] ?? 1005, close[1] ?? '']);
      }
      app.close();
    });

    it('delivers no further messages to a handler that has closed', async () => {
      for (const end of ['end', 'close']) {
        const { app, log, port } = serve((log) => ({
          message(ws, message) {
            log.add('message', text(message));
            if (text(message) === 'b') ws[end]();
          },
        }));
        const ws = await open(port, client);
        const frame = (letter) => [0x81, 0x81, 0, 0, 0, 0, letter.charCodeAt(0)];
        ws.command({ raw: Buffer.from(['a', 'b', 'c', 'd'].flatMap(frame)).toString('base64') });
        await ws.until((event) => 'closed' in event);
        const code = end === 'end' ? 0 : 1006;
        assert.deepEqual(log.entries, [
          ['message', 'a'],
          ['message', 'b'],
          ['close', code, ''],
        ]);
        app.close();
      }
    });

    it('reports why a connection ended without a close frame', async () => {
      const { app, log, port } = serve({ maxPayloadLength: 1000, open: (ws) => ws.send('open') });
      const cases = [
        [{ drop: true }, 'Received TCP FIN before WebSocket close frame'],
        [{ text: 'x'.repeat(1001) }, 'Received too big message', 1009],
        // Text that is not UTF-8, masked with zeros; a frame with reserved bits set; an unmasked
        // frame.
        [
          { raw: Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28]).toString('base64') },
          'Received invalid UTF-8',
          1007,
        ],
        [
          { raw: Buffer.from([0xf1, 0x80, 0, 0, 0, 0]).toString('base64') },
          'Received invalid WebSocket frame',
          1002,
        ],
        [
          { raw: Buffer.from([0x81, 0x01, 0x41]).toString('base64') },
          'Received invalid WebSocket frame',
          1002,
        ],
      ];
      for (const [command, reason, code] of cases) {
        log.entries.length = 0;
        const ws = await open(port, client);
        assert.equal(await ws.text(), 'open');
        ws.command(command);
        if (code !== undefined)
          assert.equal((await ws.until((event) => 'closed' in event)).closed, code, reason);
        assert.deepEqual(await log.until('close'), ['close', 1006, reason]);
      }
      app.close();
    });

    it('answers pings and delivers pongs', async () => {
      const { app, log, port } = serve((log) => ({
        open: (ws) => assert.equal(ws.ping('there?'), 1),
        ping: (_ws, data) => log.add('ping', text(data)),
        pong: (_ws, data) => log.add('pong', text(data)),
      }));
      const ws = await open(port, client);
      assert.deepEqual(await ws.next(), { ping: 'there?' });
      assert.deepEqual(await log.until('pong'), ['pong', 'there?']);
      assert.deepEqual(await ws.command({ ping: 'and you?' }).next(), { pong: 'and you?' });
      assert.deepEqual(await log.until('ping'), ['ping', 'and you?']);
      app.close();
    });

    it('pings idle clients and closes those that do not answer', async () => {
      const silent = serve({
        idleTimeout: 0.2,
        sendPingsAutomatically: false,
        open: (ws) => ws.send('open'),
      });
      const ws = await open(silent.port, client);
      assert.equal(await ws.text(), 'open');
      assert.deepEqual(await silent.log.until('close'), [
        'close',
        1006,
        'WebSocket timed out from inactivity',
      ]);
      silent.app.close();
      const asked = serve({ idleTimeout: 0.2 });
      const other = await open(asked.port, client);
      assert.deepEqual(await other.next(), { ping: '' });
      assert.deepEqual(await other.next(), { ping: '' });
      assert.deepEqual(asked.log.entries, []);
      asked.app.close();
      const patient = serve({
        idleTimeout: 0,
        maxBackpressure: 0,
        message: (ws, message) => ws.send(message),
      });
      assert.equal(
        await (await open(patient.port, client)).command({ text: 'for ever' }).text(),
        'for ever',
      );
      patient.app.close();
    });

    it('closes clients at their maximum lifetime and asks them to reconnect', async () => {
      const { app, log, port } = serve({ maxLifetime: 0.002 });
      const ws = await open(port, client);
      assert.deepEqual(await ws.next(), { closed: 1000, reason: 'please reconnect' });
      assert.deepEqual(await log.until('close'), ['close', 1000, 'please reconnect']);
      app.close();
    });

    it('sends fragmented messages', async () => {
      const { app, port } = serve({
        open(ws) {
          assert.throws(() => ws.sendFragment('x'), /no fragmented message is in progress/);
          ws.sendFirstFragment('one ');
          assert.throws(() => ws.sendFirstFragment('x'), /a fragmented message is in progress/);
          ws.send('behind it');
          ws.sendFragment('two ');
          ws.sendLastFragment(Buffer.from('three'));
          ws.sendFirstFragment(Buffer.from([1]), true);
          ws.sendLastFragment(Buffer.from([2]));
        },
      });
      const ws = await open(port, client);
      const [first, second, third] = [await ws.next(), await ws.next(), await ws.next()];
      assert.deepEqual(
        [first.message.toString(), first.frames, first.binary],
        ['one two three', 3, false],
      );
      assert.equal(second.message.toString(), 'behind it');
      assert.deepEqual([[...third.message], third.frames, third.binary], [[1, 2], 2, true]);
      app.close();
    });

    it('compresses messages on request where both sides support it', async () => {
      const content = 'compressible '.repeat(100);
      const behavior = (compression) => ({
        compression,
        open(ws) {
          ws.send(content, false, true);
          ws.send(content, false, false);
          ws.publish('none', content);
          ws.subscribe('all');
        },
        message: (ws, message) => ws._route.app.publish('all', message, false, true),
      });
      const seen = async (port, options) => {
        const ws = await open(port, client, options);
        const events = [
          await ws.next(),
          await ws.next(),
          await ws.command({ text: content }).next(),
        ];
        for (const event of events) assert.equal(event.message.toString(), content);
        return [ws.fields['sec-websocket-extensions'], ...events.map((event) => event.compressed)];
      };
      const kinds = [
        [
          uWS.SHARED_COMPRESSOR,
          'permessage-deflate; server_no_context_takeover; client_no_context_takeover',
        ],
        [
          uWS.DEDICATED_COMPRESSOR_4KB | uWS.DEDICATED_DECOMPRESSOR_512B,
          /^permessage-deflate; server_max_window_bits=9; client_max_window_bits=9$/,
        ],
        [uWS.DEDICATED_COMPRESSOR | uWS.DEDICATED_DECOMPRESSOR, 'permessage-deflate'],
      ];
      for (const [compression, extensions] of kinds) {
        const { app, port } = serve(behavior(compression));
        const [agreed, ...compressed] = await seen(port, { deflate: true });
        if (typeof extensions === 'string') assert.equal(agreed, extensions);
        else assert.match(agreed, extensions);
        // A published message is compressed once, which does not work for clients that keep a context.
        assert.deepEqual(compressed, [true, false, compression === uWS.SHARED_COMPRESSOR]);
        assert.deepEqual(await seen(port, {}), [undefined, false, false, false]);
        app.close();
      }
      const { app, port } = serve(behavior(uWS.DISABLED));
      assert.deepEqual(await seen(port, { deflate: true }), [undefined, false, false, false]);
      app.close();
    });

    it('applies back-pressure, drops messages over the limit, and reports the drain', async () => {
      const piece = Buffer.alloc(64 << 10, 'p');
      const { app, log, port } = serve((log) => ({
        maxBackpressure: 1 << 20,
        open(ws) {
          ws.sent = ws.drops = ws.drains = 0;
          // All in one turn, in which the client can read nothing: until messages are buffered, and
          // then until the limit is exceeded.
          let result;
          do {
            result = ws.send(piece, true);
            if (result !== 2) ws.sent++;
            log[result] = (log[result] ?? 0) + 1;
          } while (result !== 2);
        },
        dropped(ws, message, isBinary) {
          assert.deepEqual([message.byteLength, isBinary], [piece.length, true]);
          assert.ok(ws.getBufferedAmount() > 1 << 20);
          ws.drops++;
        },
        drain(ws) {
          ws.drains++;
          if (ws.drops === 0 || ws.getBufferedAmount() > 0) return;
          ws.send(JSON.stringify({ sent: ws.sent, drops: ws.drops, drained: ws.drains > 0 }));
          ws.drops = 0;
        },
      }));
      const ws = await open(port, client);
      let received = 0;
      for (;;) {
        const event = await ws.next();
        assert.ok(event.message, JSON.stringify(event));
        if (event.binary) {
          received++;
          continue;
        }
        assert.deepEqual(JSON.parse(event.message), { sent: received, drops: 1, drained: true });
        break;
      }
      assert.deepEqual([log[0] > 0, log[1] > 0, log[2]], [true, true, 1]);
      app.close();
    });

    it('continues while a message waits for the last fragment of another', async () => {
      const { app, log, port } = serve((log) => ({
        message(ws) {
          ws.sendFirstFragment('a');
          app.publish('all', 'x');
          log.add('held', ws.send('y'), ws.getBufferedAmount());
          setTimeout(() => {
            log.add('still', ws.getBufferedAmount());
            ws.sendLastFragment('b');
          }, 1);
        },
        open: (ws) => ws.subscribe('all'),
        drain: (ws) => log.add('drain', ws.getBufferedAmount()),
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      assert.deepEqual([await ws.text(), await ws.text(), await ws.text()], ['ab', 'x', 'y']);
      await log.until('drain', (name, left) => name === 'drain' && left === 0);
      assert.ok(log.entries[0][2] >= 2 && log.entries[1][1] >= 2, JSON.stringify(log.entries));
      app.close();
    });

    it('reports when the fragments of a message are sent, whatever waits for the last one', async () => {
      const part = Buffer.alloc(256 << 10, 'p');
      const { app, log, port } = serve((log) => ({
        message(ws) {
          ws.parts = 0;
          ws.sendFirstFragment('first');
          ws.send('held');
          let result;
          do {
            result = ws.sendFragment(part);
            ws.parts++;
          } while (result === 1);
          log.add('waits', result);
        },
        drain(ws) {
          if (ws.parts === 0) return;
          log.add('parts', ws.parts);
          ws.parts = 0;
          ws.sendLastFragment('last');
        },
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      const whole = await ws.next();
      assert.equal(await ws.text(), 'held');
      assert.deepEqual(log.entries[0], ['waits', 0]);
      assert.equal(
        whole.message.length,
        'first'.length + log.entries[1][1] * part.length + 'last'.length,
      );
      app.close();
    });

    it('sends responses to messages that arrive together with a close', async () => {
      const { app, log, port } = serve((log) => ({
        closeOnBackpressureLimit: true,
        message: (ws, message) => log.add('sent', ws.send(message)),
        dropped: () => log.add('dropped'),
      }));
      const frame = (first, content) => [first, 0x80 | content.length, 0, 0, 0, 0, ...content];
      // More messages than are read in a turn.
      const messages = Array.from({ length: 300 }, () => frame(0x81, Buffer.from('a'))).flat();
      const close = frame(0x88, [0x03, 0xe8, ...Buffer.from('bye')]);
      const ws = await open(port, client);
      ws.command({ raw: Buffer.from([...messages, ...close]).toString('base64') });
      for (let count = 0; count < 300; count++)
        assert.equal(await ws.text(), 'a', `message ${count}`);
      assert.deepEqual(await ws.next(), { closed: 1000, reason: 'bye' });
      assert.deepEqual(await log.until('close'), ['close', 1000, 'bye']);
      assert.ok(
        log.entries.slice(0, -1).every(([what, result]) => what === 'sent' && result === 1),
      );
      app.close();
    });

    it('sends a message larger than the backlog limit, and the next one', async () => {
      const large = Buffer.alloc(2 << 20, 'l');
      const { app, log, port } = serve((log) => ({
        closeOnBackpressureLimit: true,
        message: (ws) => log.add('sent', ws.send(large, true), ws.send('after')),
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      assert.ok((await ws.next()).message.equals(large));
      assert.equal(await ws.text(), 'after');
      assert.deepEqual(log.entries, [['sent', 1, 0]]);
      app.close();
    });

    it('sends pings in order among messages', async () => {
      const { app, log, port } = serve((log) => ({
        message(ws) {
          const results = [ws.send('x'), ws.ping('1'), ws.ping('2'), ws.send('y'), ws.ping('3')];
          log.add('sent', ...results);
          ws.end(1000);
        },
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      const events = [
        await ws.next(),
        await ws.next(),
        await ws.next(),
        await ws.next(),
        await ws.next(),
      ];
      const seen = events.map((event) => event.ping ?? event.message.toString());
      assert.deepEqual(seen, ['x', '1', '2', 'y', '3']);
      assert.deepEqual(log.entries[0], ['sent', 1, 1, 1, 1, 1]);
      app.close();
    });

    it('lets the subscription handler of a closing connection read it and publish', async () => {
      const { app, log, port } = serve((log) => ({
        open: (ws) => ws.subscribe('all'),
        subscription(ws, topic, now, before) {
          if (now > before) return;
          log.add(
            'left',
            ws.publish(topic, 'somebody left'),
            ws.isSubscribed(topic),
            ws.getTopics(),
          );
          assert.throws(() => ws.subscribe('more'), /closed/);
          assert.throws(() => ws.end(), /closed/);
        },
        message: (ws) => ws.end(1000, 'bye'),
      }));
      const [one, two] = [await open(port, client), await open(port, client)];
      one.command({ text: 'go' });
      assert.equal(await two.text(), 'somebody left');
      assert.deepEqual(log.entries, [
        ['left', true, true, ['all']],
        ['close', 1000, 'bye'],
      ]);
      assert.equal(app.numSubscribers('all'), 1);
      app.close();
    });

    it('closes a client that does not read, if configured', async () => {
      const piece = Buffer.alloc(64 << 10, 'p');
      const { app, log, port } = serve((log) => ({
        maxBackpressure: 100_000,
        closeOnBackpressureLimit: true,
        message(ws) {
          // In one turn, in which the client can read nothing.
          for (let count = 0; count < 32; count++) ws.send(piece, true);
        },
        dropped: () => log.add('dropped'),
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      assert.deepEqual(await log.until('close'), ['close', 1006, '']);
      assert.deepEqual(log.entries[0], ['dropped']);
      assert.equal((await ws.until((event) => 'closed' in event)).closed, 1006);
      app.close();
    });

    it('drops messages sent after a close caused by back-pressure, and reports the close after the drop', async () => {
      const piece = Buffer.alloc(64 << 10, 'p');
      const { app, log, port } = serve((log) => ({
        maxBackpressure: 100_000,
        closeOnBackpressureLimit: true,
        open: (ws) => ws.subscribe('all'),
        message(ws) {
          while (ws.send(piece, true) !== 2);
          log.add(
            'over',
            ws.send('more'),
            ws.sendFirstFragment('more'),
            ws.getBufferedAmount(),
            ws.ping(),
          );
          log.add(
            'and on',
            ws.isSubscribed('all'),
            app.publish('all', 'more'),
            ws.unsubscribe('all'),
          );
        },
        dropped: (_ws, message) => log.add('dropped', message.byteLength),
      }));
      const ws = (await open(port, client)).command({ text: 'go' });
      assert.deepEqual(await log.until('close'), ['close', 1006, '']);
      assert.deepEqual(log.entries, [
        ['dropped', piece.length],
        ['dropped', 4],
        ['dropped', 4],
        ['dropped', 0],
        ['over', 2, 2, 0, 2],
        ['and on', true, true, true],
        ['close', 1006, ''],
      ]);
      assert.equal((await ws.until((event) => 'closed' in event)).closed, 1006);
      app.close();
    });

    it('publishes to subscribers', async () => {
      const { app, log, port } = serve((log) => ({
        open(ws) {
          ws.subscribe('all');
          ws.subscribe(Buffer.from('rooms/1'));
          ws.subscribe('all');
          log.add('topics', ws.getTopics(), ws.isSubscribed('all'), ws.isSubscribed('rooms/#'));
        },
        subscription: (_ws, topic, now, before) =>
          log.add('subscription', text(topic), now, before),
        message(ws, message) {
          const [what, ...rest] = JSON.parse(text(message));
          const result = ws[what](...rest);
          const topics = [];
          ws.iterateTopics((topic) => topics.push(topic));
          ws.send(JSON.stringify([result, topics]));
        },
      }));
      const [one, two] = [await open(port, client), await open(port, client)];
      assert.deepEqual(log.entries, [
        ['subscription', 'all', 1, 0],
        ['subscription', 'rooms/1', 1, 0],
        ['topics', ['all', 'rooms/1'], true, false],
        ['subscription', 'all', 2, 1],
        ['subscription', 'rooms/1', 2, 1],
        ['topics', ['all', 'rooms/1'], true, false],
      ]);
      assert.equal(app.numSubscribers('all'), 2);
      // Topics are matched literally: there are no wildcards.
      assert.equal(app.publish('rooms/+', 'nobody'), false);
      assert.equal(app.publish('all', 'from the app'), true);
      assert.deepEqual([await one.text(), await two.text()], ['from the app', 'from the app']);
      assert.equal(app.publish(Buffer.from('all'), new Uint8Array([1, 2]), true), true);
      for (const ws of [one, two]) {
        const event = await ws.next();
        assert.deepEqual([event.binary, [...event.message]], [true, [1, 2]]);
      }
      const ask = async (ws, ...what) =>
        JSON.parse(await ws.command({ text: JSON.stringify(what) }).text());
      // To all subscribers except itself.
      assert.deepEqual(await ask(one, 'publish', 'rooms/1', 'from one'), [
        true,
        ['all', 'rooms/1'],
      ]);
      assert.equal(await two.text(), 'from one');
      log.entries.length = 0;
      assert.deepEqual(await ask(two, 'unsubscribe', 'rooms/1'), [true, ['all']]);
      assert.deepEqual(await ask(two, 'unsubscribe', 'rooms/1'), [false, ['all']]);
      assert.deepEqual(await ask(one, 'publish', 'rooms/1', 'nobody else'), [
        false,
        ['all', 'rooms/1'],
      ]);
      assert.deepEqual(log.entries, [['subscription', 'rooms/1', 1, 2]]);
      // A closed connection is unsubscribed before its close handler runs.
      log.entries.length = 0;
      one.command({ close: [1000, ''] });
      await log.until('close');
      assert.deepEqual(log.entries, [
        ['subscription', 'all', 1, 2],
        ['subscription', 'rooms/1', 0, 1],
        ['close', 1000, ''],
      ]);
      assert.deepEqual([app.numSubscribers('all'), app.numSubscribers('rooms/1')], [1, 0]);
      app.close();
      assert.deepEqual([app.publish('none', 'x')], [false]);
    });

    it('reports errors thrown by handlers, and continues', async () => {
      reports.length = 0;
      const { app, port } = serve({
        open() {
          throw new Error('in open');
        },
        message: async (ws, message) => {
          ws.cork(() => ws.send(text(message)));
          throw new Error('in message');
        },
      });
      const ws = await open(port, client);
      assert.equal(await ws.command({ text: 'on' }).text(), 'on');
      assert.equal(await ws.command({ text: 'and on' }).text(), 'and on');
      assert.deepEqual(reports.slice(0, 2), [
        ['ws /*', 'in open'],
        ['ws /*', 'in message'],
      ]);
      app.close();
    });

    it('keeps its internal state whatever the user data properties are named', async () => {
      const { app, port } = serve({
        upgrade(res, req, context) {
          const fields = ['key', 'protocol', 'extensions'].map((field) =>
            req.getHeader(`sec-websocket-${field}`),
          );
          const data = {
            _number: 4_000_000_000,
            _isOpen: false,
            _route: null,
            _topics: null,
            mine: 'yours',
          };
          const wrong = Object.defineProperty({}, 'mine', {
            enumerable: true,
            get: () => assert.fail('a getter that throws'),
          });
          assert.throws(() => res.upgrade(wrong, ...fields, context), /a getter that throws/);
          res.upgrade(data, ...fields, context);
        },
        open: (ws) => ws.send(ws.mine),
      });
      const ws = await open(port, client);
      assert.equal(await ws.text(), 'yours');
      app.close();
    });

    it('drops none of many small messages of one turn', async () => {
      const COUNT = 50_000;
      const { app, log, port } = serve((log) => ({
        open(ws) {
          let others = 0;
          for (let sent = 0; sent < COUNT; sent += 1) others += ws.send('x') !== 1;
          log.add('sent', others);
          ws.end(1000, 'all');
        },
      }));
      const ws = await open(port, client);
      assert.deepEqual(await log.until('sent'), ['sent', 0]);
      for (let received = 0; received < COUNT; received += 1) assert.equal(await ws.text(), 'x');
      app.close();
    });

    it('ends with its app, which sends a close frame to clients if time permits', async () => {
      const { app, log, port } = serve({ open: (ws) => ws.send('open') });
      const ws = await open(port, client);
      assert.equal(await ws.text(), 'open');
      const closed = app.close({ timeout: 30_000 });
      assert.equal((await ws.next()).closed, 1001);
      await closed;
      assert.deepEqual(log.entries, [['close', 1001, '']]);
      const hard = serve({ open: (ws) => ws.send('open') });
      const other = await open(hard.port, client);
      assert.equal(await other.text(), 'open');
      hard.app.close();
      assert.deepEqual(await hard.log.until('close'), ['close', 1006, '']);
    });

    it('retains nothing of closed connections', () => released(native.openExchanges));
  });
}

describe('WebSocket', () => {
  it('publishes to clients of all protocols of a Server', async () => {
    const { tls } = require('./support/certificate');
    const app = uWS.Server(tls).ws('/*', {
      open: (ws) => ws.subscribe('all'),
      message: (ws, message) => ws.publish('all', message),
    });
    const port = listening(app);
    const clients = [];
    for (const protocol of ['http/1.1', 'h2', 'h3'])
      clients.push(await open(port, { protocol, secure: true }));
    assert.equal(app.numSubscribers('all'), 3);
    for (const sender of clients) {
      sender.command({ text: 'to the others' });
      for (const receiver of clients)
        if (receiver !== sender) assert.equal(await receiver.text(), 'to the others');
    }
    app.close();
  });

  it('buffers no more than the limit for an idle client that reads nothing', async () => {
    const log = new Log();
    const app = uWS.App().ws('/*', {
      maxBackpressure: 1000,
      closeOnBackpressureLimit: true,
      open(ws) {
        let most = 0;
        const timer = setInterval(() => {
          if (ws.send(Buffer.alloc(1 << 20)) === 2) {
            clearInterval(timer);
            log.add('most', most);
          } else most = Math.max(most, ws.getBufferedAmount());
        }, 5);
      },
    });
    const port = listening(app);
    const socket = net.connect(port, '127.0.0.1');
    socket.write(
      'GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    );
    socket.pause();
    const [, most] = await log.until('most');
    // Three messages fit; the socket's own buffers come in addition.
    assert.ok(most <= 4 << 20, `${most} bytes`);
    socket.destroy();
    app.close();
  });

  it('rejects an invalid key, and a late response throws', async () => {
    const log = new Log();
    const app = uWS.App().ws('/*', {
      upgrade(res, _req, context) {
        res.onAborted(() => {});
        assert.throws(() => res.upgrade({}, 'wrong', '', '', context), /sec-websocket-key/);
        assert.throws(() => res.end('late'), /on a response that has ended/);
        log.add('refused');
      },
    });
    const port = listening(app);
    const client = await open(port, { protocol: 'http/1.1', secure: false });
    await log.until('refused');
    assert.equal(client.status, 400, client.error);
    app.close();
  });

  it('rejects invalid input', () => {
    const app = uWS.App();
    const cases = [
      [() => app.ws('/*'), /app\.ws\(\) takes an object of handlers and options, not undefined/],
      [() => app.ws('x', {}), /app\.ws\(\) takes a pattern that begins with a slash/],
      [
        () => app.ws('/*', { mesage() {} }),
        /no handler or option "mesage"; did you mean "message"\?/,
      ],
      [() => app.ws('/*', { open: 5 }), /app\.ws\(\): open takes a function, not number/],
      [() => app.ws('/*', { idleTimeout: -1 }), /idleTimeout is a number from 0 to 86400, not -1/],
      [() => app.ws('/*', { maxLifetime: 240 }), /maxLifetime is a number from 0 to 239, not 240/],
      [() => app.ws('/*', { maxPayloadLength: 'big' }), /maxPayloadLength is a number/],
    ];
    for (const [action, message] of cases) assert.throws(action, message, String(action));
  });

  it('has the compression options by name', async () => {
    const { default: all, ...named } = await import('../index.mjs');
    for (const [name, value] of Object.entries(require('../lib/compression'))) {
      assert.deepEqual([uWS[name], all[name], named[name]], [value, value, value], name);
    }
  });
});
