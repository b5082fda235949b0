'use strict';

// Certificates for the tests, made by openssl.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'pronghorn-test-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

/** Files with a certificate for `name` and its key, which has a passphrase if one is given. */
function make(name, passphrase) {
  const label = `${name.replaceAll('*', '_')}${passphrase === undefined ? '' : '-locked'}`;
  const [key, cert] = [path.join(folder, `${label}-key.pem`), path.join(folder, `${label}-cert.pem`)];
  const lock = passphrase === undefined ? ['-nodes'] : ['-passout', `pass:${passphrase}`];
  execFileSync(
    'openssl',
    [
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      ...lock,
      '-keyout',
      key,
      '-out',
      cert,
      '-days',
      '2',
      '-subj',
      `/CN=${name}`,
      '-addext',
      `subjectAltName=DNS:${name},IP:127.0.0.1,IP:::1`,
    ],
    { stdio: 'ignore' },
  );
  return { key_file_name: key, cert_file_name: cert };
}

module.exports = { make, tls: make('localhost'), folder };
