'use strict';

// The development certificate: kept, regenerated when necessary, and accepted by clients that trust
// it.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { createHash, X509Certificate } = require('node:crypto');
const fs = require('node:fs');
const http2 = require('node:http2');
const https = require('node:https');
const path = require('node:path');
const { describe, it } = require('node:test');
const uWS = require('..');
const { folder: scratch } = require('./support/certificate');
const { listening, overHttp3 } = require('./support/clients');

const DAY = 24 * 60 * 60 * 1000;
const folder = path.join(scratch, 'development');
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('base64');

describe('developmentCertificate', () => {
  it('is for localhost and loopback, and browsers can pin its hashes', () => {
    const made = uWS.developmentCertificate({ folder });
    assert.deepEqual(Object.keys(made), ['key_file_name', 'cert_file_name']);
    const certificate = new X509Certificate(fs.readFileSync(made.cert_file_name));
    for (const name of ['DNS:localhost', 'IP Address:127.0.0.1', 'IP Address:0:0:0:0:0:0:0:1']) {
      assert.ok(certificate.subjectAltName.split(', ').includes(name), certificate.subjectAltName);
    }
    assert.equal(made.sha256, sha256(certificate.raw));
    assert.equal(
      made.spkiSha256,
      sha256(certificate.publicKey.export({ type: 'spki', format: 'der' })),
    );
    assert.equal(made.validTo.getTime(), Date.parse(certificate.validTo));
    // Chromium accepts a certificate by its hash only if it is not valid for longer and has an
    // elliptic-curve key.
    assert.ok(Date.parse(certificate.validTo) - Date.parse(certificate.validFrom) <= 14 * DAY);
    assert.equal(certificate.publicKey.asymmetricKeyDetails.namedCurve, 'prime256v1');
    assert.equal(fs.statSync(made.key_file_name).mode & 0o077, 0, 'others can read the key');
    const flags = made.chromiumFlags(8443);
    assert.ok(flags.includes(`--ignore-certificate-errors-spki-list=${made.spkiSha256}`), flags);
    assert.ok(flags.includes('--origin-to-force-quic-on=localhost:8443'), flags);
    assert.throws(
      () => made.chromiumFlags('8443'),
      /takes the port that the app listens on, not "8443"/,
    );
  });

  it('is kept, and regenerated when it is damaged', () => {
    const first = uWS.developmentCertificate({ folder });
    assert.equal(uWS.developmentCertificate({ folder }).sha256, first.sha256);
    fs.writeFileSync(first.cert_file_name, 'not what it was');
    assert.notEqual(uWS.developmentCertificate({ folder }).sha256, first.sha256);
  });

  it('is an option of every app with TLS, and clients that trust it verify it', async () => {
    const made = uWS.developmentCertificate({ folder });
    const ca = fs.readFileSync(made.cert_file_name);
    const app = uWS
      .Server({ ...made, server: 'test' })
      .setCertificate(made)
      .get('/*', (res, req) => res.end(req.getProtocol()));
    const port = listening(app);
    const overHttp1 = await new Promise((resolve, reject) => {
      https
        .get({ host: '127.0.0.1', port, servername: 'localhost', ca, agent: false }, (response) =>
          response.setEncoding('utf8').on('data', resolve),
        )
        .on('error', reject);
    });
    const overHttp2 = await new Promise((resolve, reject) => {
      const session = http2
        .connect(`https://127.0.0.1:${port}`, { ca, servername: 'localhost' })
        .on('error', reject);
      session
        .request()
        .setEncoding('utf8')
        .on('data', (text) => {
          session.close();
          resolve(text);
        });
    });
    const answer = await overHttp3(port);
    assert.deepEqual([overHttp1, overHttp2, answer.body?.toString()], ['http/1.1', 'h2', 'h3']);
    app.close();
  });

  it("is stored in the user's data folder by default", () => {
    const program = `console.log(require(${JSON.stringify(path.join(__dirname, '..'))}).developmentCertificate().cert_file_name)`;
    const run = (env) => spawnSync(process.execPath, ['-e', program], { env, encoding: 'utf8' });
    assert.equal(
      run({ HOME: scratch }).stdout.trim(),
      path.join(scratch, '.local/share/pronghorn/cert.pem'),
    );
    assert.equal(
      run({ HOME: '/', XDG_DATA_HOME: scratch }).stdout.trim(),
      path.join(scratch, 'pronghorn/cert.pem'),
    );
    assert.match(
      run({}).stderr,
      /no home folder to keep a certificate in: give developmentCertificate\(\) a folder/,
    );
  });

  it('rejects invalid input', () => {
    assert.throws(
      () => uWS.developmentCertificate({ directory: 'x' }),
      /has no option "directory": it has folder/,
    );
    assert.throws(
      () => uWS.developmentCertificate({ folder: 5 }),
      /takes the name of a folder, not 5/,
    );
    assert.throws(() => uWS.developmentCertificate(null), /takes \{ folder \}, or nothing/);
    const file = path.join(scratch, 'file');
    fs.writeFileSync(file, '');
    assert.throws(
      () => uWS.developmentCertificate({ folder: file }),
      new RegExp(`^Error: cannot store a certificate in ${file}: `),
    );
  });
});
