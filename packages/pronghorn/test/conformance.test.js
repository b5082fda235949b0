'use strict';

// The same handlers over all protocols: clients must see the same responses.

const assert = require('node:assert/strict');
const net = require('node:net');
const { after, describe, it } = require('node:test');
const nodeTls = require('node:tls');
const { DeclarativeResponse } = require('..');
const native = require('../lib/native');
const { faces, listening, released } = require('./support/clients');

/** A one-time event to wait for. */
function happening() {
  let happen;
  const promise = new Promise((resolve) => (happen = resolve));
  return { promise, happen };
}

const big = Buffer.alloc(3 << 20, 'pronghorn ');

for (const { name, protocol, make, request } of faces) {
  describe(name, () => {
    const reports = [];
    const app = make({ onError: (error, where) => reports.push([where, error.message]) });
    after(() => app.close());
    const on = {};
    app
      .get('/hello', (res) => res.end('hello'))
      .get('/same', (res) => res.end('always the same'))
      .get('/head', (res) => {
        res
          .writeStatus('404 Not Found')
          .writeHeader('x-one', '1')
          .writeHeader('x-two', 'zwei ü')
          .writeHeader('X-One', 'again')
          .end('gone');
      })
      .get('/many', (res) => {
        for (let index = 0; index < 60; index++)
          res.writeHeader(`x-header-${index}`, `value ${index}`);
        res.end();
      })
      .get('/repeated', (res, req) => {
        // A repeated value is cached on the native side, a long one is not.
        const value = decodeURIComponent(req.getQuery('value')).repeat(
          Number(req.getQuery('times')),
        );
        res.writeHeader('x-repeated', value).writeHeader('x-repeated', value).end(value);
      })
      .any('/request/:first/*', (res, req) => {
        const headers = {};
        req.forEach((key, value) => (headers[key] = value));
        res.end(
          JSON.stringify({
            method: req.getMethod(),
            caseSensitive: req.getCaseSensitiveMethod(),
            url: req.getUrl(),
            query: req.getQuery(),
            a: req.getQuery('a'),
            none: req.getQuery('none') ?? null,
            first: req.getParameter(0),
            byName: req.getParameter('first'),
            second: req.getParameter(1) ?? null,
            header: req.getHeader('x-test'),
            absent: req.getHeader('x-absent'),
            cookie: req.getHeader('cookie'),
            host: req.getHeader('host'),
            listed: headers['x-test'],
            protocol: req.getProtocol(),
            serverNames: [req.getServerName(), res.getServerName()],
          }),
        );
      })
      .post('/echo', (res) => {
        const chunks = [];
        res.onAborted(() => {});
        res.onData((chunk, isLast) => {
          chunks.push(Buffer.from(chunk));
          if (isLast) res.end(Buffer.concat(chunks));
        });
      })
      .post('/collect', (res) => {
        res
          .onAborted(() => {})
          .collectBody(100_000, (body) =>
            res.end(body === null ? 'too large' : `${body.byteLength} bytes`),
          );
      })
      .post('/remaining', (res) => {
        const seen = [];
        res.onAborted(() => {});
        seen.push(String(res.maxRemainingBodyLength()));
        res.onDataV2((chunk, remaining) => {
          seen.push(`${chunk.byteLength}/${remaining}`);
          if (remaining === 0n) res.end(seen.join(' '));
        });
      })
      .post('/unread', (res) => res.end('not read'))
      .post('/reads-on', (res, req) => {
        const how = req.getQuery('how');
        let size = 0;
        let ended = false;
        res.onAborted(() => assert.fail('the response was complete'));
        const answer = () => {
          ended = true;
          if (how === 'write') res.write('so');
          if (how === 'try') res.write('') && res.tryEnd('soon', 4);
          else res.end(how === 'write' ? 'on' : 'soon');
        };
        res.onData((chunk, isLast) => {
          size += chunk.byteLength;
          if (!ended && how === 'piece') answer();
          if (isLast) on.read.happen(size);
          else if (ended && how === 'pause') {
            res.pause();
            setImmediate(() => res.resume());
          }
        });
        if (how === 'later') setImmediate(answer);
        else if (how !== 'piece') answer();
      })
      .post('/rests-until-left', (res) => {
        let size = 0;
        res.onDataOrAborted((still, chunk, remaining) => {
          if (still === null) return on.read.happen('lost');
          size += chunk.byteLength;
          if (remaining === 0n) on.read.happen(size);
          else if (on.goOn === undefined) {
            on.goOn = () => res.resume();
            res.pause();
          }
        });
        res.end('soon');
      })
      .post('/reads-no-more', (res) => {
        res.onAborted(() => {});
        res.onData(() => assert.fail('nobody wants it'));
        res.pause();
        res.end('no');
      })
      .post('/reads-until', (res) => {
        res.onDataOrAborted((still) => still === null && on.lost.happen('lost'));
        res.end('soon');
      })
      .post('/reads-and-fails', (res) => {
        res.onDataOrAborted((still) => {
          if (still === null) return on.lost.happen('lost');
          throw new Error('cannot read that');
        });
        res.end('soon');
      })
      .post('/ends-before-it-is-writable', (res) => {
        res.onAborted(() => {});
        let ended = false;
        res.onWritable(() => assert.equal(ended, false));
        res.onData((chunk, isLast) => {
          if (isLast) return on.read.happen('last');
          ended = true;
          res.end('x');
        });
        res.write(big.subarray(0, 200_000));
      })
      .post('/paused', (res) => {
        let size = 0;
        res.onAborted(() => {});
        res.onData((chunk, isLast) => {
          size += chunk.byteLength;
          if (isLast) return res.end(String(size));
          res.pause();
          setImmediate(() => res.resume());
        });
      })
      .get('/later', async (res) => {
        res.onAborted(() => {});
        await null;
        res.cork(() => res.writeStatus('202 Accepted').writeHeader('x-later', 'yes').end('later'));
      })
      .get('/timer', (res) => {
        res.onAborted(() => {});
        setTimeout(() => res.end('timer'), 5);
      })
      .get('/write', (res) => {
        res.onAborted(() => {});
        assert.equal(res.writeHeader('x-kind', 'streamed').write('one '), true);
        setImmediate(() => {
          res.write(new Uint8Array([116, 119, 111, 32]));
          assert.equal(res.getWriteOffset(), 8);
          res.end('three');
        });
      })
      .get('/write-and-close', (res) => {
        res.onAborted(() => {});
        res.write('one');
        setImmediate(() => res.end('two', true));
      })
      .get('/pressure', (res) => {
        res.onAborted(() => {});
        let left = 200;
        const go = () => {
          while (left > 0) {
            left--;
            if (!res.write(big.subarray(0, 16384))) return (on.pressure = true);
          }
          res.end();
          return true;
        };
        res.onWritable(go);
        go();
      })
      .any('/try-end', (res) => {
        res.onAborted(() => {});
        const go = (offset) => res.tryEnd(big.subarray(offset), big.length);
        res.onWritable((offset) => {
          on.offsets.push(offset);
          assert.equal(offset, res.getWriteOffset());
          return go(offset)[0];
        });
        on.offsets = [];
        on.first = go(0);
      })
      .get('/try-end-small', (res) => {
        const result = res.tryEnd('small', 5);
        assert.deepEqual(result, [true, true]);
      })
      .head('/without-body', (res) => res.endWithoutBody(12345))
      .get('/not-modified', (res) => res.writeStatus('304 Not Modified').endWithoutBody())
      .any('/head-or-get', (res) => res.end('content'))
      .get('/hints', (res) => {
        res.onAborted(() => {});
        res.writeEarlyHints('</style.css>; rel=preload; as=style');
        setImmediate(() => res.end('hinted'));
      })
      .get('/address', (res) => {
        const text = Buffer.from(res.getRemoteAddressAsText()).toString();
        const proxied = [res.getProxiedRemoteAddress().byteLength, res.getProxiedRemotePort()];
        res.end(
          JSON.stringify([
            text,
            [...new Uint8Array(res.getRemoteAddress())],
            res.getRemotePort() > 0,
            ...proxied,
          ]),
        );
      })
      .get('/waits', (res) => {
        res.onAborted(() => on.aborted.happen(protocol));
        on.waiting?.happen();
      })
      .get('/stream-for-ever', (res) => {
        res.onAborted(() => on.aborted.happen(protocol));
        res.write('begun');
      })
      .any('/complete', (res, req) => {
        on.complete = [];
        res.onAborted(() => {
          on.complete.push('aborted');
          on.aborted?.happen();
        });
        if (req.getQuery('status')) res.writeStatus(req.getQuery('status'));
        else if (req.getMethod() === 'get') res.writeHeader('content-length', '5');
        res.write('whole');
        if (req.getQuery('endless') !== undefined) return;
        // HTTP/1.1 has sent the whole response by then, as its content-length says.
        setTimeout(() => {
          if (on.complete.length === 0) res.end();
          on.complete.push('ended');
          on.ended.happen();
        }, 10);
      })
      .get('/req-after-end', (res, req) => {
        res.end(big.subarray(0, 300_000));
        on.late = [req.getHeader('x-test'), req.getUrl()];
      })
      .post('/last-once', (res) => {
        const seen = [];
        on.lastOnce = seen;
        res.onDataOrAborted((still, chunk, remaining) => {
          seen.push(still === null ? 'aborted' : remaining);
          if (remaining === 0n) setImmediate(() => still.end('once'));
        });
      })
      .any('/without-body-big', (res, req) => {
        if (req.getQuery('bad') === undefined) return res.endWithoutBody(5n * 2n ** 32n);
        assert.throws(() => res.endWithoutBody(-1), /takes the length that is announced, not -1/);
        res.end('still there');
      })
      .get('/all-fields', (res, req) => {
        const fields = {};
        req.forEach((name, value) => (fields[name] = value));
        res.end(JSON.stringify([fields['x-utf8'], fields['x-latin1'], req.getHeader('x-utf8')]));
      })
      .get('/try-end-text', (res) => {
        // Characters of three bytes, split where the limit falls within one.
        const text = '\u4f60'.repeat(100_000);
        const whole = Buffer.from(text);
        res.onAborted(() => {});
        res.onWritable((offset) => res.tryEnd(whole.subarray(offset), whole.length)[0]);
        res.tryEnd(text, whole.length);
        on.cut = res.getWriteOffset();
      })
      .post('/begun-upload', (res) => {
        res.onAborted(() => on.aborted.happen(protocol));
        res.write('begun');
        res.onData(() => {});
      })
      .post('/upload', (res) => {
        res.onAborted(() => on.aborted.happen(protocol));
        res.onData(() => {});
      })
      .get('/close', (res) => {
        let isAborted = false;
        res.onAborted(() => (isAborted = true));
        res.close();
        assert.equal(isAborted, true);
      })
      .get('/close-begun', (res) => {
        res.onAborted(() => {});
        res.write('begun');
        setImmediate(() => res.close());
      })
      .get('/throws', () => {
        throw new Error('thrown');
      })
      .get('/throws-begun', (res) => {
        res.onAborted(() => {});
        res.write('begun');
        throw new Error('thrown');
      })
      .get('/rejects', async (res) => {
        res.onAborted(() => {});
        await null;
        throw new Error('rejected');
      })
      .get('/forgets', () => {})
      .get('/after-end', (res) => {
        res.end('ended');
        res.end('again');
      })
      .get('/req-later', async (res, req) => {
        res.onAborted(() => {});
        await null;
        let message;
        try {
          req.getHeader('x-test');
        } catch (error) {
          message = error.message;
        }
        res.end(message);
      })
      .get('/yield/*', (res, req) => {
        res.writeHeader('x-yielded', 'yes');
        req.setYield(true);
      })
      .any('/yield/:what', (res, req) => res.end(`any ${req.getParameter(0)}`))
      .get('/declared/:what', (res, req) => {
        if (req.getQuery('begun') !== undefined) {
          res.onAborted(() => {});
          res.write('begun');
        } else {
          res.writeStatus('203').writeHeader('x-yielded', 'yes');
        }
        req.setYield(true);
      })
      .any(
        '/declared/*',
        new DeclarativeResponse().write('declared ').writeHeaderValue('x-test').end(),
      )
      .post('/declared-content', (res, req) => {
        res.onAborted(() => {});
        res.onData(() => assert.fail('the content is for the next route'));
        req.setYield(true);
      })
      .any('/declared-content', new DeclarativeResponse().write('content ').writeBody().end())
      .get('/yield-all', (res, req) => {
        req.setYield(true);
      });
    const port = listening(app);
    const get = (path, more) => request(port, { path, ...more });
    const body = (answer) => answer.body?.toString();
    const openConnections = () => app.getStatistics().tcp_open + app.getStatistics().quic_open;

    it('responds with status, fields and body', async () => {
      const answer = await get('/hello?with=query');
      assert.deepEqual([answer.status, body(answer), answer.fields], [200, 'hello', {}]);
      assert.equal(answer.raw['content-length'], '5');
    });

    it('responds with the same body repeatedly', async () => {
      for (let round = 0; round < 5; round++)
        assert.equal(body(await get('/same')), 'always the same');
    });

    it('sends repeated header values, with other values in between', async () => {
      const cases = [...'aaababb']
        .map((value) => [value, 1])
        .concat([
          ['c', 1024],
          ['c', 1024],
          ['c', 1024],
          ['d', 1025],
        ]);
      for (const [value, times] of [
        ...cases,
        ['d', 1025],
        ['ü', 3],
        ['ü', 3],
        ['ü', 3],
        ['a', 1],
      ]) {
        const answer = await get(`/repeated?value=${encodeURIComponent(value)}&times=${times}`);
        const expected = value.repeat(times);
        assert.equal(body(answer), expected);
        assert.equal(
          Buffer.from(answer.fields['x-repeated'], 'latin1').toString(),
          `${expected}, ${expected}`,
        );
      }
    });

    it('sends status and headers', async () => {
      const answer = await get('/head');
      assert.deepEqual([answer.status, body(answer)], [404, 'gone']);
      assert.equal(answer.fields['x-one'], '1, again');
      assert.equal(Buffer.from(answer.fields['x-two'], 'latin1').toString(), 'zwei ü');
    });

    it('sends any number of headers', async () => {
      const { fields } = await get('/many');
      const expected = Object.fromEntries(
        Array.from({ length: 60 }, (_, index) => [`x-header-${index}`, `value ${index}`]),
      );
      assert.deepEqual(fields, expected);
    });

    it('exposes the whole request', async () => {
      const headers = { 'x-test': 'yes', cookie: ['a=1', 'b=2'] };
      if (protocol === 'http/1.1') headers.cookie = 'a=1; b=2';
      const answer = await get('/request/one/two/three?a=1%202&b', {
        method: 'PATCH',
        headers,
        host: 'localhost',
      });
      assert.deepEqual(JSON.parse(body(answer)), {
        method: 'patch',
        caseSensitive: 'PATCH',
        url: '/request/one/two/three',
        query: 'a=1%202&b',
        a: '1 2',
        none: null,
        first: 'one',
        byName: 'one',
        second: null,
        header: 'yes',
        absent: '',
        cookie: 'a=1; b=2',
        host: 'localhost',
        listed: 'yes',
        protocol,
        serverNames: name === 'App' ? ['', ''] : ['localhost', 'localhost'],
      });
    });

    it('accepts a request header of 5 KB', async () => {
      const answer = await get('/request/x/', { headers: { 'x-test': 'h'.repeat(5000) } });
      assert.equal(JSON.parse(body(answer)).header.length, 5000);
    });

    it('echoes bodies of any size', async () => {
      for (const size of [0, 1, 1000, 100_000, 1_500_000]) {
        const content = big.subarray(0, size);
        const answer = await request(port, {
          path: '/echo',
          method: 'POST',
          body: content,
          pieces: size > 1000 ? 10 : undefined,
        });
        assert.equal(answer.status, 200);
        assert.ok(answer.body.equals(content), `${size} bytes`);
      }
    });

    it('collects a body up to a size limit', async () => {
      const collect = async (size) =>
        body(
          await request(port, {
            path: '/collect',
            method: 'POST',
            body: big.subarray(0, size),
            pieces: 4,
          }),
        );
      assert.equal(await collect(100_000), '100000 bytes');
      assert.equal(await collect(0), '0 bytes');
      assert.equal(await collect(100_001), 'too large');
    });

    it('reports how much of the body remains', async () => {
      const headers = { 'content-length': '10' };
      const answer = await request(port, {
        path: '/remaining',
        method: 'POST',
        body: '0123456789',
        headers,
        pieces: 1,
      });
      const seen = body(answer).split(' ');
      assert.equal(seen[0], '10');
      assert.match(seen.at(-1), /\/0$/);
      const unknown = await request(port, {
        path: '/remaining',
        method: 'POST',
        body: '0123456789',
        pieces: 2,
        headers: protocol === 'http/1.1' ? { 'transfer-encoding': 'chunked' } : {},
      });
      assert.equal(body(unknown).split(' ')[0], String(2n ** 64n - 1n));
      assert.equal(body(await request(port, { path: '/remaining', method: 'POST' })), '0 0/0');
    });

    it('responds before the body is read', async () => {
      assert.equal(
        body(await request(port, { path: '/unread', method: 'POST', body: 'x'.repeat(1000) })),
        'not read',
      );
    });

    it('keeps reading the body after the response', async () => {
      for (const how of ['', 'write', 'try', 'piece', 'later', 'pause']) {
        on.read = happening();
        const late = big.subarray(0, 500_000);
        const answer = await request(port, {
          path: `/reads-on?how=${how}`,
          method: 'POST',
          body: 'first',
          late,
        });
        assert.deepEqual(
          [answer.error, answer.status, body(answer)],
          [undefined, 200, 'soon'],
          how,
        );
        assert.equal(await on.read.promise, 500_005, how);
      }
      // The whole body arrived with the head, or there is none.
      for (const content of ['first', '', undefined]) {
        on.read = happening();
        assert.equal(
          body(await request(port, { path: '/reads-on', method: 'POST', body: content })),
          'soon',
        );
        assert.equal(await on.read.promise, content?.length ?? 0);
      }
      on.read = happening();
      reports.length = 0;
      const more = { method: 'POST', body: 'first', late: big.subarray(0, 1000) };
      assert.equal(
        (await request(port, { path: '/ends-before-it-is-writable', ...more })).body.length,
        200_001,
      );
      assert.deepEqual([await on.read.promise, reports], ['last', []]);
    });

    it('reads the whole received body although the client has disconnected', async () => {
      on.read = happening();
      on.goOn = undefined;
      // More than is buffered while the handler is paused.
      const more = { method: 'POST', body: 'first', late: big.subarray(0, 300_000) };
      assert.equal(body(await request(port, { path: '/rests-until-left', ...more })), 'soon');
      // Over TCP the end arrives behind the unread data.
      while (protocol === 'h3' && openConnections() > 0)
        await new Promise((resolve) => setTimeout(resolve, 5));
      on.goOn();
      assert.equal(await on.read.promise, 300_005);
    });

    it('stops reading a body that the handler no longer reads, or whose handler fails', async () => {
      const post = async (path) =>
        body(await request(port, { path, method: 'POST', body: 'first' }));
      assert.equal(await post('/reads-no-more'), 'no');
      reports.length = 0;
      on.lost = happening();
      assert.equal(await post('/reads-and-fails'), 'soon');
      assert.equal(await on.lost.promise, 'lost');
      assert.deepEqual(reports, [['POST /reads-and-fails', 'cannot read that']]);
    });

    it('reports when a body read after the response does not arrive', async () => {
      on.lost = happening();
      await request(port, {
        path: '/reads-until',
        method: 'POST',
        body: 'some',
        unfinished: true,
        abort: 'connection',
      });
      assert.equal(await on.lost.promise, 'lost');
    });

    if (protocol === 'http/1.1') {
      it('closes the connection if a started response fails', async () => {
        const module = name === 'App' ? net : nodeTls;
        const socket = module.connect({ port, host: '127.0.0.1', rejectUnauthorized: false });
        socket.write('GET /write-and-close HTTP/1.1\r\nhost: localhost\r\n\r\n');
        const chunks = [];
        // The server ends the connection.
        for await (const chunk of socket) chunks.push(chunk);
        assert.match(Buffer.concat(chunks).toString(), /one.*two.*\r\n0\r\n\r\n$/s);
      });
    } else {
      it('continues where no connection can be asked to close', async () => {
        assert.equal(body(await get('/write-and-close')), 'onetwo');
      });
    }

    it('pauses and resumes', async () => {
      assert.equal(
        body(
          await request(port, {
            path: '/paused',
            method: 'POST',
            body: big.subarray(0, 600_000),
            pieces: 20,
          }),
        ),
        '600000',
      );
    });

    it('responds later', async () => {
      const answer = await get('/later');
      assert.deepEqual(
        [answer.status, answer.fields['x-later'], body(answer)],
        [202, 'yes', 'later'],
      );
      assert.equal(body(await get('/timer')), 'timer');
    });

    it('streams a response', async () => {
      const answer = await get('/write');
      assert.deepEqual([answer.fields['x-kind'], body(answer)], ['streamed', 'one two three']);
    });

    it('applies back-pressure to a writer and resumes it', async () => {
      on.pressure = false;
      const answer = await get('/pressure');
      assert.equal(answer.body.length, 200 * 16384);
      assert.equal(on.pressure, true);
    });

    it('resumes tryEnd at the offset where it stopped', async () => {
      const answer = await get('/try-end');
      assert.ok(answer.body.equals(big));
      assert.equal(answer.raw['content-length'], String(big.length));
      assert.deepEqual(on.first, [false, false]);
      assert.ok(on.offsets.length > 0);
      assert.deepEqual(
        on.offsets,
        on.offsets.toSorted((one, other) => one - other),
      );
      assert.equal(body(await get('/try-end-small')), 'small');
    });

    it('keeps the request readable while its handler runs, even after the response ended', async () => {
      assert.equal(
        (await get('/req-after-end', { headers: { 'x-test': 'late' } })).body.length,
        300_000,
      );
      assert.deepEqual(on.late, ['late', '/req-after-end']);
    });

    it('delivers the last chunk once', async () => {
      const headers = { 'content-length': '100000' };
      const body_ = big.subarray(0, 100_000);
      const answer = await request(port, {
        path: '/last-once',
        method: 'POST',
        body: body_,
        headers,
        pieces: 3,
      });
      assert.equal(body(answer), 'once');
      assert.deepEqual(
        on.lastOnce.filter((remaining) => remaining === 0n || remaining === 'aborted'),
        [0n],
      );
    });

    it('splits text between characters', async () => {
      const answer = await get('/try-end-text');
      assert.equal(body(answer), '\u4f60'.repeat(100_000));
      assert.ok(on.cut > 0 && on.cut < 300_000 && on.cut % 3 === 0, on.cut);
    });

    it('lists each header unchanged, whatever the others are', async () => {
      // The client decodes the bytes as Latin-1.
      const headers = {
        'x-utf8': Buffer.from('gr\u00fcn').toString('latin1'),
        'x-latin1': 'gr\u00fcn',
      };
      assert.deepEqual(JSON.parse(body(await get('/all-fields', { headers }))), [
        'gr\u00fcn',
        'gr\u00fcn',
        'gr\u00fcn',
      ]);
    });

    it('declares any length without a body', async () => {
      const reported = await get('/without-body-big', { method: 'HEAD' });
      assert.deepEqual(
        [reported.status, reported.raw['content-length']],
        [200, String(5 * 2 ** 32)],
      );
      assert.equal(body(await get('/without-body-big?bad')), 'still there');
    });

    it('answers HEAD without a body', async () => {
      const reported = await get('/without-body', { method: 'HEAD' });
      assert.deepEqual(
        [reported.status, reported.raw['content-length'], reported.body.length],
        [200, '12345', 0],
      );
      const answer = await get('/head-or-get', { method: 'HEAD' });
      assert.deepEqual(
        [answer.status, answer.raw['content-length'], answer.body.length],
        [200, '7', 0],
      );
      const streamed = await get('/try-end', { method: 'HEAD' });
      assert.deepEqual(
        [streamed.status, streamed.raw['content-length'], streamed.body.length],
        [200, String(big.length), 0],
      );
    });

    it('sends 304 without a body', async () => {
      const answer = await get('/not-modified');
      assert.deepEqual([answer.status, answer.body.length], [304, 0]);
    });

    it('sends early hints', async () => {
      const answer = await get('/hints');
      assert.deepEqual(answer.informational, [
        { status: 103, fields: { link: '</style.css>; rel=preload; as=style' } },
      ]);
      assert.equal(body(answer), 'hinted');
    });

    it("reports the client's address", async () => {
      assert.deepEqual(JSON.parse(body(await get('/address'))), [
        '127.0.0.1',
        [127, 0, 0, 1],
        true,
        0,
        0,
      ]);
    });

    it('responds with 404 where no route matches', async () => {
      assert.equal((await get('/nowhere')).status, 404);
      assert.equal((await get('/hello', { method: 'POST' })).status, 404);
      assert.equal((await get('/yield-all')).status, 404);
    });

    it('continues with the next route when a handler yields', async () => {
      const answer = await get('/yield/x');
      assert.deepEqual([body(answer), answer.fields['x-yielded']], ['any x', 'yes']);
    });

    it('continues with a DeclarativeResponse when a handler yields', async () => {
      const answer = await get('/declared/x', { headers: { 'x-test': 'it' } });
      assert.deepEqual(
        [answer.status, answer.fields['x-yielded'], body(answer)],
        [203, 'yes', 'declared it'],
      );
      const content = await request(port, {
        path: '/declared-content',
        method: 'POST',
        body: 'sent',
      });
      assert.deepEqual([content.status, body(content)], [200, 'content sent']);
      if (protocol === 'http/1.1') {
        // Bytes after an upgrade request are not a request body, so the server does not wait for them.
        const headers = { connection: 'upgrade', upgrade: 'other' };
        assert.equal(body(await get('/declared-content', { headers })), 'content ');
      }
      reports.length = 0;
      assert.ok((await get('/declared/x?begun')).error);
      assert.match(
        reports[0][1],
        /a response that has begun cannot be left to a DeclarativeResponse/,
      );
      assert.equal(body(await get('/hello')), 'hello');
    });

    it('reports clients that disconnect', async () => {
      on.aborted = happening();
      on.waiting = happening();
      const [answer, who] = await Promise.all([
        get('/waits', { abort: 'now' }),
        on.aborted.promise,
      ]);
      assert.deepEqual([answer.aborted, who], [true, protocol]);
      on.aborted = happening();
      assert.equal((await get('/stream-for-ever', { abort: 'head' })).aborted, true);
      await on.aborted.promise;
      on.aborted = happening();
      await request(port, {
        path: '/upload',
        method: 'POST',
        body: 'some',
        unfinished: true,
        pieces: 1,
        abort: 'now',
      });
      await on.aborted.promise;
    });

    it('does not report a complete response as aborted', async () => {
      on.aborted = undefined;
      for (const [path, status, length] of [
        ['/complete', 200, 5],
        ['/complete?status=204', 204, 0],
        ['/complete?status=304', 304, 0],
      ]) {
        on.ended = happening();
        const answer = await get(path);
        assert.deepEqual(
          [answer.status, answer.error, answer.body.length],
          [status, undefined, length],
        );
        await on.ended.promise;
        assert.deepEqual(on.complete, ['ended'], path);
      }
      on.ended = happening();
      assert.equal((await get('/complete?head', { method: 'HEAD' })).error, undefined);
      await on.ended.promise;
      // A response that never ends is notified when the connection ends.
      on.aborted = happening();
      await get('/complete?endless', { method: 'HEAD' });
      await on.aborted.promise;
    });

    it('releases clients that disconnect during an upload after the response started', async () => {
      const answer = new Promise((resolve) => (on.aborted = { happen: resolve }));
      await request(port, {
        path: '/begun-upload',
        method: 'POST',
        body: 'some',
        unfinished: true,
        abort: 'head',
      });
      await answer;
      while (openConnections() > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    });

    it('closes without a response', async () => {
      assert.ok((await get('/close')).error);
      const answer = await get('/close-begun');
      assert.ok(answer.error, 'not to be taken for complete');
      assert.equal(body(await get('/hello')), 'hello');
    });

    it('responds with 500 for a failing handler, and continues', async () => {
      reports.length = 0;
      assert.equal((await get('/throws')).status, 500);
      assert.equal((await get('/rejects')).status, 500);
      assert.equal((await get('/forgets')).status, 500);
      assert.ok((await get('/throws-begun')).error);
      assert.equal(body(await get('/after-end')), 'ended');
      assert.equal(body(await get('/hello')), 'hello');
      assert.deepEqual(
        reports.map(([where]) => where),
        ['GET /throws', 'GET /rejects', 'GET /forgets', 'GET /throws-begun', 'GET /after-end'],
      );
      assert.deepEqual([reports[0][1], reports[1][1]], ['thrown', 'rejected']);
      assert.match(reports[2][1], /res\.onAborted\(\(\) => \{ aborted = true; \}\)/);
      assert.match(
        reports[4][1],
        /res\.end\(\) was called on a response that has ended.*res\.onAborted/,
      );
    });

    it('rejects reading a request after its handler returned', async () => {
      assert.match(
        body(await get('/req-later')),
        /req\.getHeader\(\) was called after its handler had returned.*before the first await/,
      );
    });

    it('counts requests and releases all of them', async () => {
      const counters = app.getStatistics();
      const served = counters.requests_http1 + counters.requests_http2 + counters.requests_http3;
      assert.ok(served > 40, JSON.stringify(counters));
      assert.equal(counters.handler_panics, 0);
      // Requests that were aborted, closed, failed or not fully read are released too.
      await released(native.openExchanges);
    });
  });
}
