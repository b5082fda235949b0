'use strict';

// Certificates for the tests, made by openssl.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'pronghorn-test-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

/** Creates files with a certificate for `name` and its key, encrypted if there is a passphrase. */
function make(name, passphrase) {
  const label = `${name.replaceAll('*', '_')}${passphrase === undefined ? '' : '-locked'}`;
  const [key, cert] = [
    path.join(folder, `${label}-key.pem`),
    path.join(folder, `${label}-cert.pem`),
  ];
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

const openssl = (...given) => execFileSync('openssl', given, { stdio: 'ignore' });

/** Creates files with the certificate of an authority and its key. */
function makeAuthority(name) {
  const [key, cert] = [path.join(folder, `${name}-key.pem`), path.join(folder, `${name}.pem`)];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl(
    'req',
    '-x509',
    ...curve,
    '-keyout',
    key,
    '-out',
    cert,
    '-days',
    '2',
    '-subj',
    `/CN=${name}`,
  );
  return { key, cert };
}

/** Creates files with a certificate for `name`, signed by `authority`, and its key. */
function sign(authority, name, { days = 2, extensions = 'extendedKeyUsage=clientAuth' } = {}) {
  const file = (end) => path.join(folder, `${name}${end}`);
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl(
    'req',
    '-new',
    ...curve,
    '-keyout',
    file('-key.pem'),
    '-out',
    file('.csr'),
    '-subj',
    `/O=tests/CN=${name}`,
  );
  fs.writeFileSync(file('.cnf'), `subjectAltName=DNS:${name}\n${extensions}\n`);
  const [request, issuer] = [
    ['-req', '-in', file('.csr')],
    ['-CA', authority.cert, '-CAkey', authority.key, '-CAcreateserial'],
  ];
  openssl(
    'x509',
    ...request,
    ...issuer,
    '-days',
    String(days),
    '-extfile',
    file('.cnf'),
    '-out',
    file('-cert.pem'),
  );
  return { key_file_name: file('-key.pem'), cert_file_name: file('-cert.pem') };
}

module.exports = { make, makeAuthority, sign, tls: make('localhost'), folder };
