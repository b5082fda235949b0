'use strict';

// Client certificates: when they are requested, which clients are accepted, and what programs see,
// compared with node:https where possible.

const assert = require('node:assert/strict');
const { X509Certificate } = require('node:crypto');
const fs = require('node:fs');
const https = require('node:https');
const tlsModule = require('node:tls');
const { describe, it } = require('node:test');
const uWS = require('..');
const pronghorn = require('../lib/http');
const { fetchHandler } = require('../lib/fetch');
const srvx = require('../lib/fetch/srvx');
const { make, makeAuthority, sign, tls } = require('./support/certificate');
const { faces, listening, overHttp2, overHttp3, secure } = require('./support/clients');

const text = (answer) => answer.body?.toString() ?? answer.error;
const authority = makeAuthority('authority');
const friend = sign(authority, 'friend');
const stranger = sign(makeAuthority('stranger-authority'), 'stranger');
const server = sign(authority, 'a-server', { extensions: 'extendedKeyUsage=serverAuth' });
const alone = make('alone');
const expired = sign(authority, 'expired', { days: 0 });
/** A client certificate used as a CA. */
const asAuthority = ({ key_file_name: key, cert_file_name: cert }) => ({ key, cert });
/** Certificates that are in `ca` themselves, and certificates that they have signed. */
const known = sign(authority, 'known');
const former = sign(authority, 'former', {
  days: 0,
  extensions: 'basicConstraints=critical,CA:TRUE',
});
const direct = sign(authority, 'direct', {
  extensions: 'basicConstraints=critical,CA:TRUE,pathlen:0',
});
const between = sign(asAuthority(direct), 'between', {
  extensions: 'basicConstraints=critical,CA:TRUE',
});
const read = (file) => fs.readFileSync(file, 'utf8');
/** A CA, and a self-signed client certificate. */
const ca = [read(authority.cert), read(alone.cert_file_name)];
const pem = { key: read(tls.key_file_name), cert: read(tls.cert_file_name) };

const ways = { 'http/1.1': secure, h2: overHttp2, h3: overHttp3 };
const secureFaces = faces.filter(({ name }) => name !== 'App');
const listen = (given) =>
  new Promise((resolve) => given.listen(0, '127.0.0.1', () => resolve(given.address().port)));

/** A srvx program that responds with its client. */
const serveSrvx = (given) =>
  srvx.serve({
    port: 0,
    hostname: '127.0.0.1',
    silent: true,
    gracefulShutdown: false,
    fetch: ({ runtime }) =>
      new Response(
        `${runtime.pronghorn.authorized} ${runtime.pronghorn.clientCertificate?.subject}`,
      ),
    ...given,
  });

/** Resolves when a certificate with a validity of zero days has expired. */
async function afterExpiry() {
  const { validTo } = new X509Certificate(read(expired.cert_file_name));
  while (Date.now() <= Date.parse(validTo) + 1000)
    await new Promise((resolve) => setTimeout(resolve, 50));
}

describe('sockets of pronghorn/http', () => {
  /** Returns what a handler sees of its client. */
  function seen({ socket }) {
    const { authorized, authorizationError } = socket;
    const certificate = socket.getPeerX509Certificate();
    return {
      authorized,
      authorizationError,
      protocol: socket.getProtocol(),
      cipher: socket.getCipher(),
      peer: socket.getPeerCertificate(),
      fingerprint: certificate?.fingerprint256,
    };
  }

  /** Returns the same for all clients, over HTTP/1.1 and both versions of TLS. */
  async function seenBy(createServer, given, clients) {
    const all = [];
    const made = createServer(
      { ...given, key: read(tls.key_file_name), cert: read(tls.cert_file_name) },
      (req, res) => {
        all.push(seen(req));
        res.end();
      },
    );
    const port = await listen(made);
    for (const client of clients) {
      for (const maxVersion of ['TLSv1.2', 'TLSv1.3']) {
        const ciphers =
          maxVersion === 'TLSv1.2' ? { ciphers: 'ECDHE-ECDSA-AES256-GCM-SHA384' } : {};
        const answer = await secure(port, { client: { ...client, maxVersion, ...ciphers } });
        assert.equal(answer.status, 200, text(answer));
      }
    }
    made.closeAllConnections();
    made.close();
    return all;
  }

  it('report client certificates as node:https does', async () => {
    await afterExpiry();
    const clients = [{}, friend, stranger, alone, make('other'), server, expired];
    const given = { ca, requestCert: true, rejectUnauthorized: false };
    const [expected, found] = [
      await seenBy(https.createServer, given, clients),
      await seenBy(pronghorn.createServer, given, clients),
    ];
    const verdicts = expected.map(({ authorized, authorizationError }) => [
      authorized,
      authorizationError,
    ]);
    assert.deepEqual(verdicts[2], [true, null]);
    assert.ok(
      verdicts.some(([, error]) => error === 'CERT_HAS_EXPIRED'),
      JSON.stringify(verdicts),
    );
    // The versions prefer other ciphers.
    for (const one of [...expected, ...found]) {
      if (one.protocol === 'TLSv1.3') delete one.cipher;
    }
    found.forEach((one, index) => assert.deepEqual(one, expected[index], `client ${index}`));
  });

  it('reject each client that node:https rejects', async () => {
    await afterExpiry();
    const chained = sign(asAuthority(between), 'chained');
    fs.appendFileSync(chained.cert_file_name, read(between.cert_file_name));
    const cases = [
      ['that is known itself', known, true],
      ['of one that is known and is no authority', sign(asAuthority(known), 'of-known'), false],
      ['of an authority', sign(asAuthority(direct), 'of-direct'), true],
      ['of an authority that may have none below it', chained, false],
      ['of an authority that has expired', sign(asAuthority(former), 'of-former'), false],
      [
        'that may only sign certificates',
        sign(authority, 'signer', { extensions: 'keyUsage=keyCertSign' }),
        false,
      ],
    ];
    const all = [authority.cert, ...[known, former, direct].map((one) => one.cert_file_name)].map(
      read,
    );
    const given = { ca: all, requestCert: true, rejectUnauthorized: false };
    const clients = cases.map(([, client]) => client);
    for (const createServer of [https.createServer, pronghorn.createServer]) {
      const found = await seenBy(createServer, given, clients);
      for (const [index, [what, , expected]] of cases.entries()) {
        for (const one of found.slice(2 * index, 2 * index + 2))
          assert.equal(one.authorized, expected, what);
      }
    }
    const app = uWS.Server({ ...tls, ca: all }).any('/*', (res) => res.end());
    const port = listening(app);
    for (const request of Object.values(ways)) {
      for (const [what, client, expected] of cases) {
        // The HTTP/3 client sends only one certificate.
        if (request === overHttp3 && client === chained) continue;
        assert.equal((await request(port, { client })).status, expected ? 200 : 403, what);
      }
    }
    app.close();
  });

  it('report nothing where no certificate is requested, as with a CA alone', async () => {
    for (const given of [{}, { ca }]) {
      const [expected, found] = [
        await seenBy(https.createServer, given, [friend]),
        await seenBy(pronghorn.createServer, given, [friend]),
      ];
      for (const one of [...expected, ...found]) delete one.cipher;
      assert.deepEqual(found, expected);
    }
  });

  it('report the same over all protocols', async () => {
    const all = [];
    const made = pronghorn.createServer({ ...tls, ca, requestCert: true }, (req, res) => {
      const { cipher, ...others } = seen(req);
      all.push(others);
      res.end(cipher.name);
    });
    const port = await listen(made);
    for (const request of Object.values(ways))
      assert.match(text(await request(port, { client: friend })), /^TLS_/);
    assert.equal(all[0].peer.subject.CN, 'friend');
    assert.deepEqual(all[1], all[0]);
    assert.deepEqual(all[2], all[0]);
    made.closeAllConnections();
    made.close();
  });
});

describe('clients without a trusted certificate', () => {
  for (const { name, make: makeApp, request } of secureFaces) {
    it(`are rejected before a handler sees them: ${name}`, async () => {
      let handled = 0;
      const app = makeApp({ ca_file_name: authority.cert })
        .get('/declared', new uWS.DeclarativeResponse().end('declared'))
        .any('/*', (res) => {
          handled++;
          res.end(new X509Certificate(res.getX509Certificate()).subject);
        });
      const port = listening(app);
      for (const path of ['/', '/declared', '/none']) {
        const none = await request(port, { path });
        assert.deepEqual([none.status, text(none)], [403, 'a client certificate is required\n']);
        const other = await request(port, { path, client: stranger });
        assert.deepEqual(
          [other.status, text(other)],
          [403, 'the client certificate is not trusted\n'],
        );
      }
      assert.equal(handled, 0);
      assert.equal(text(await request(port, { client: friend })), 'O=tests\nCN=friend');
      assert.equal(text(await request(port, { client: friend, path: '/declared' })), 'declared');
      app.close();
    });

    it(`are served where a certificate is only requested: ${name}`, async () => {
      const app = makeApp({ ca: ca[0], reject_unauthorized: false }).any('/*', (res) =>
        res.end(res.getX509Certificate()),
      );
      const port = listening(app);
      assert.equal(text(await request(port)), '');
      assert.equal(text(await request(port, { client: friend })), read(friend.cert_file_name));
      assert.equal(text(await request(port, { client: stranger })), read(stranger.cert_file_name));
      app.close();
    });

    it(`are not asked for a certificate by default: ${name}`, async () => {
      for (const given of [{}, { request_cert: false, ca_file_name: authority.cert }]) {
        const app = makeApp(given).any('/*', (res) => res.end(res.getX509Certificate()));
        assert.deepEqual(text(await request(listening(app), { client: friend })), '');
        app.close();
      }
    });
  }

  it('may be verified with the CAs that Node.js trusts', async () => {
    const app = uWS.SSLApp({ ...tls, request_cert: true }).any('/*', (res) => res.end());
    const port = listening(app);
    assert.equal((await secure(port, { client: friend })).status, 403);
    app.close();
    assert.ok(tlsModule.rootCertificates.length > 0);
  });

  it('cannot open a WebSocket or WebTransport session', async () => {
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
    const headers = { ...upgrade, 'sec-websocket-key': 'MDEyMzQ1Njc4OTAxMjM0NQ==' };
    const app = uWS.SSLApp({ ...tls, ca_file_name: authority.cert }).ws('/*', {});
    assert.equal((await secure(listening(app), { headers })).status, 403);
    app.close();
  });
});

describe('server names', () => {
  it('have their own client certificate settings', async () => {
    const open = make('open.test');
    const app = uWS
      .Server(open)
      .addServerName('closed.test', { ...make('closed.test'), ca_file_name: authority.cert })
      .any('/*', (res) => res.end(res.getX509Certificate() === '' ? 'nobody' : 'friend'));
    const port = listening(app);
    for (const [name, request] of Object.entries(ways)) {
      const ask = async (servername, host, client = {}) => {
        const answer = await request(port, { host, client: { ...client, servername } });
        return answer.status === 200 ? text(answer) : answer.status;
      };
      assert.equal(await ask('open.test', 'open.test', friend), 'nobody', name);
      assert.equal(await ask('closed.test', 'closed.test'), 403, name);
      assert.equal(await ask('closed.test', 'closed.test', friend), 'friend', name);
      assert.equal(await ask('closed.test', 'closed.test', stranger), 403, name);
      // The connection is for one server name, and a request over it for the other.
      for (const host of ['closed.test', 'CLOSED.test', 'closed.test:1', 'closed.test.']) {
        assert.equal(await ask('open.test', host, friend), 421, `${name} ${host}`);
      }
      assert.equal(await ask('closed.test', 'open.test'), 403, name);
      assert.equal(await ask('closed.test', 'open.test', friend), 'friend', name);
    }
    app.removeServerName('closed.test');
    assert.equal(
      (await secure(port, { host: 'closed.test', client: { servername: 'closed.test' } })).status,
      200,
    );
    app.close();
  });

  it('may require client certificates when missingServerName adds them', async () => {
    const app = uWS
      .Server({ without_certificate: true })
      .missingServerName((name) => app.addServerName(name, { ...make(name), ca: ca[0] }))
      .any('/*', (res) => res.end('let in'));
    const port = listening(app);
    for (const [index, request] of Object.values(ways).entries()) {
      const host = `late-${index}.test`;
      assert.equal(
        text(await request(port, { host, client: { ...friend, servername: host } })),
        'let in',
      );
      assert.equal((await request(port, { host, client: { servername: host } })).status, 403);
    }
    app.close();
  });
});

describe('a replaced certificate', () => {
  it('keeps the client certificate settings unless it overrides them', async () => {
    const app = uWS.SSLApp({ ...tls, ca_file_name: authority.cert }).any('/*', (res) => res.end());
    app.addServerName('name.test', { ...make('name.test'), ca_file_name: authority.cert });
    const port = listening(app);
    const status = async (servername) =>
      (await secure(port, { host: servername, client: { servername } })).status;
    app.setCertificate(make('localhost'));
    app.addServerName('name.test', make('name.test'));
    assert.deepEqual([await status('localhost'), await status('name.test')], [403, 403]);
    app.setCertificate({ ...tls, request_cert: false });
    assert.deepEqual([await status('localhost'), await status('name.test')], [200, 403]);
    app.removeServerName('name.test');
    app.addServerName('name.test', make('name.test'));
    assert.equal(await status('name.test'), 200);
    app.setCertificate({ ...tls, ca: ca[0], request_cert: true });
    assert.deepEqual([await status('localhost'), await status('name.test')], [403, 200]);
    app.close();
  });

  it("and contexts of pronghorn/http inherit the server's client certificate settings", async () => {
    const made = pronghorn.createServer({ ...tls, ca: ca[0], requestCert: true }, (req, res) =>
      res.end(String(req.socket.authorized)),
    );
    const port = await listen(made);
    const status = async (servername, client) => {
      const answer = await secure(port, { host: servername, client: { ...client, servername } });
      return answer.status === 200 ? text(answer) : answer.status;
    };
    made.addContext('name.test', make('name.test'));
    made.setSecureContext(tls);
    for (const name of ['localhost', 'name.test']) {
      assert.deepEqual([await status(name), await status(name, friend)], [403, 'true']);
    }
    made.addContext('name.test', { ...make('name.test'), ca: read(makeAuthority('third').cert) });
    assert.equal(await status('name.test', friend), 403);
    made.closeAllConnections();
    made.close();
  });
});

describe('ca_file_name in a context of pronghorn/http', () => {
  it("requests client certificates, whatever the server's settings", async () => {
    const made = pronghorn.createServer(tls, (req, res) => res.end());
    const port = await listen(made);
    const status = async (servername, client) =>
      (await secure(port, { host: servername, client: { ...client, servername } })).status;
    made.addContext('closed.test', { ...make('closed.test'), ca_file_name: authority.cert });
    made.addContext('open.test', { ...make('open.test'), ca: ca[0] });
    made.addContext('said.test', {
      ...make('said.test'),
      ca_file_name: authority.cert,
      requestCert: false,
    });
    const all = ['closed.test', 'open.test', 'said.test', 'localhost'];
    const statuses = async (client) => Promise.all(all.map((name) => status(name, client)));
    assert.deepEqual(await statuses(), [403, 200, 200, 200]);
    made.setSecureContext({ ...tls, ca_file_name: authority.cert });
    assert.deepEqual(await statuses(), [403, 200, 200, 403]);
    made.setSecureContext(tls);
    assert.deepEqual(await statuses(), [403, 200, 200, 403]);
    assert.deepEqual(await statuses(friend), [200, 200, 200, 200]);
    made.closeAllConnections();
    made.close();
  });
});

describe('resumed sessions', () => {
  it("keep the client's certificate", async () => {
    const made = pronghorn.createServer({ ...tls, ca: ca[0], requestCert: true }, (req, res) =>
      res.end(req.socket.getPeerCertificate().subject.CN),
    );
    const port = await listen(made);
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3']) {
      const once = (given) =>
        new Promise((resolve, reject) => {
          let received = '';
          let [session, reused] = [];
          const socket = tlsModule.connect({
            port,
            servername: 'localhost',
            rejectUnauthorized: false,
            maxVersion,
            ...given,
          });
          socket.on('error', reject);
          socket.on('session', (fresh) => (session = fresh));
          socket.on('data', (data) => (received += data));
          socket.on('secureConnect', () => (reused = socket.isSessionReused()));
          socket.on('close', () => resolve({ received, session, reused }));
          socket.write('GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n');
        });
      const key = { key: read(friend.key_file_name), cert: read(friend.cert_file_name) };
      const first = await once(key);
      assert.ok(first.received.endsWith('friend'), first.received);
      const second = await once({ session: first.session });
      assert.deepEqual(
        [second.reused, second.received.endsWith('friend')],
        [true, true],
        maxVersion,
      );
    }
    made.closeAllConnections();
    made.close();
  });

  it("keep the client's certificate in early data", async () => {
    const app = uWS.H3App({ ...tls, ca: ca[0] }).any('/*', (res) => {
      const certificate = res.getX509Certificate();
      res.end(certificate === '' ? '' : new X509Certificate(certificate).subject);
    });
    const port = listening(app);
    const answer = await overHttp3(port, { early: true, client: friend });
    assert.deepEqual([answer.early, text(answer)], [true, 'O=tests\nCN=friend']);
    const none = await overHttp3(port, { early: true });
    assert.deepEqual([none.early, none.status], [true, 403]);
    app.close();
  });
});

describe('pronghorn/fetch', () => {
  it('reports the client certificate', async () => {
    const app = uWS.Server({ ...tls, ca, reject_unauthorized: false }).any(
      '/*',
      fetchHandler(async (_request, info) => {
        await undefined;
        const { authorized, authorizationError } = info.incoming.socket;
        const subject = info.incoming.socket.getPeerCertificate().subject?.CN ?? null;
        return Response.json([
          info.authorized,
          info.clientCertificate?.subject ?? null,
          subject,
          authorized,
          authorizationError,
        ]);
      }),
    );
    const port = listening(app);
    for (const request of Object.values(ways)) {
      const seen = async (client) => JSON.parse(text(await request(port, { client })));
      assert.deepEqual(await seen(friend), [true, 'O=tests\nCN=friend', 'friend', true, null]);
      const error = 'UNABLE_TO_VERIFY_LEAF_SIGNATURE';
      assert.deepEqual(await seen(stranger), [
        false,
        'O=tests\nCN=stranger',
        'stranger',
        false,
        error,
      ]);
      assert.deepEqual(await seen({}), [false, null, null, false, 'UNABLE_TO_GET_ISSUER_CERT']);
    }
    app.close();
  });

  /** Where srvx programs set it: in the options of `Server`, or beside key and certificate. */
  const { key_file_name: key, cert_file_name: cert } = tls;
  for (const [where, given] of [
    ['pronghorn', { pronghorn: { ...tls, ca: ca[0] } }],
    ['tls', { tls: { key, cert, ca: [authority.cert] } }],
  ]) {
    it(`reports it to programs for srvx with ca in ${where}`, async () => {
      const served = serveSrvx(given);
      await served.ready();
      const port = Number(new URL(served.url).port);
      assert.equal(text(await secure(port, { client: friend })), 'true O=tests\nCN=friend');
      for (const client of [{}, stranger])
        assert.equal((await secure(port, { client })).status, 403);
      await served.close(true);
    });
  }

  it('requests no certificate in srvx without requestCert, and admits all clients without rejectUnauthorized', async () => {
    for (const [more, expected] of [
      [{ ca: ca[0], requestCert: false }, 'false undefined'],
      [{ ca: ca[0], rejectUnauthorized: false }, 'false O=tests\nCN=stranger'],
      [{ requestCert: true, rejectUnauthorized: false }, 'false O=tests\nCN=stranger'],
    ]) {
      const served = serveSrvx({ tls: { key, cert, ...more } });
      await served.ready();
      assert.equal(
        text(await secure(Number(new URL(served.url).port), { client: stranger })),
        expected,
      );
      await served.close(true);
    }
  });
});

describe('invalid use', () => {
  it('is rejected with what to do', () => {
    const cases = [
      [
        () => uWS.App({ ca_file_name: authority.cert }),
        /App speaks clear text.*leave ca_file_name out/,
      ],
      [
        () => pronghorn.createServer({ requestCert: true }),
        /asks clients for a certificate and has none of its own/,
      ],
      [
        () => uWS.App().addServerName('a', { request_cert: true }),
        /speaks clear text.*leave request_cert out/,
      ],
      [
        () => uWS.SSLApp({ ...tls, ca_file_name: '/none' }),
        /SSLApp: \/none: No such file.*in PEM form/,
      ],
      [
        () => uWS.SSLApp({ ...tls, ca: 'nothing' }),
        /SSLApp: the authorities' certificates: contains no certificate/,
      ],
      [
        () => uWS.SSLApp({ ca_file_name: authority.cert }),
        /SSLApp asks clients .* add key_file_name and cert_file_name/,
      ],
      [() => serveSrvx({ tls: { ca: ca[0] } }), /App speaks clear text.*leave ca out/],
      [
        () => serveSrvx({ protocol: 'http', tls: { ...pem, requestCert: true } }),
        /clear text.*leave requestCert out/,
      ],
      [
        () => serveSrvx({ tls: { ...pem, requestCerts: true } }),
        /tls of serve\(\) has no option.*"requestCert"/,
      ],
    ];
    for (const [action, message] of cases) assert.throws(action, { message }, String(action));
  });

  it('of ca is rejected even if no certificate is requested', async () => {
    const makers = [
      ['createServer()', (more) => pronghorn.createServer(more)],
      ['createServer()', (more) => pronghorn.createServer({ ...pem, ...more })],
      ['createServer()', (more) => pronghorn.createServer({ ...pem, requestCert: true, ...more })],
      ['SSLApp', (more) => uWS.SSLApp({ ...tls, request_cert: false, ...more })],
    ];
    const noCertificate = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
    for (const [kind, made] of makers) {
      for (const wrong of [5, true, {}, [5], [null], [[ca[0]]]]) {
        const code = 'ERR_INVALID_ARG_TYPE';
        const message = `${kind} takes as ca a string, a Buffer or a list of these, not `;
        assert.throws(
          () => made({ ca: wrong }),
          (error) => error.code === code && error.message.startsWith(message),
        );
        assert.throws(() => https.createServer({ ca: wrong }), { code });
      }
      for (const wrong of ['x', ['x'], [''], Buffer.from('x'), pem.key, noCertificate]) {
        assert.throws(() => made({ ca: wrong }), {
          message: /the authorities' certificates: contains no certificate in PEM form: give /,
        });
      }
      for (const right of [
        undefined,
        ca[0],
        ca,
        Buffer.from(ca[1]),
        ca.join(''),
        [noCertificate, ca[0]],
      ])
        made({ ca: right });
    }
    // Nothing is reported, as in node:https.
    for (const ca of [null, '', []]) pronghorn.createServer({ ...pem, ca });
  });
});
