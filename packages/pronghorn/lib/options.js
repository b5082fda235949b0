'use strict';

const fs = require('node:fs');
const { X509Certificate, createPrivateKey } = require('node:crypto');
const nodeTls = require('node:tls');
const native = require('./native');
const { nearest } = require('./errors');

const CERTIFICATE = ['key_file_name', 'cert_file_name', 'key', 'cert'];
/** Options about client certificates, in pairs of aliases. */
const CLIENTS = [
  'ca_file_name',
  'ca',
  'request_cert',
  'requestCert',
  'reject_unauthorized',
  'rejectUnauthorized',
];
/** Options of uWebSockets.js that are accepted without effect; see docs/node/differences.md. */
const WITHOUT_EFFECT = ['dh_params_file_name', 'ssl_ciphers', 'ssl_prefer_low_memory_usage'];
/** Options that belong to a certificate. */
const TLS = [...CERTIFICATE, 'passphrase', ...CLIENTS, ...WITHOUT_EFFECT];
const SETTINGS = ['server', 'earlyData', 'congestion'];
const OWN = ['limits', 'onError', 'without_certificate'];
const KNOWN = [...TLS, ...SETTINGS, ...OWN];

/** Throws for unknown options. */
function check(kind, options, known = KNOWN) {
  if (options === null || typeof options !== 'object') {
    throw new TypeError(
      `${kind} takes an object of options, not ${options === null ? 'null' : typeof options}`,
    );
  }
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    const like = nearest(name, known);
    throw new TypeError(
      `${kind} has no option ${JSON.stringify(name)}${like === undefined ? `: it has ${known.join(', ')}` : `; did you mean ${JSON.stringify(like)}?`}`,
    );
  }
}

const given = (options, names) => names.filter((name) => options[name] !== undefined);

/** Warns about a certificate for an App, which programs for uWebSockets.js may pass. */
function warnWithoutTls(kind, options) {
  refuseClients(kind, options);
  const idle = given(options, CERTIFICATE);
  if (idle.length === 0) return;
  process.emitWarning(
    `${kind} speaks clear text: ${idle.join(' and ')} have no effect; use SSLApp, H3App or Server for TLS`,
    'PronghornWarning',
  );
}

/** Throws for client certificate options in clear text, where they would protect nothing. */
function refuseClients(kind, options) {
  if (!asksClients(options)) return;
  const names = given(options, CLIENTS).join(' and ');
  throw new TypeError(
    `${kind} speaks clear text, where clients cannot send a certificate: leave ${names} out`,
  );
}

/** Throws if there is neither a certificate nor `without_certificate`. */
function needsCertificate(kind, options) {
  if (options.without_certificate === true) return;
  throw new TypeError(
    `${kind} has no certificate: give key_file_name and cert_file_name (or key and cert), developmentCertificate() for development, ` +
      'or without_certificate: true if all certificates come from addServerName() or missingServerName()',
  );
}

/** Returns the settings of the addon: lines of name=value. */
function settings(options) {
  const lines = [];
  for (const name of SETTINGS) {
    if (options[name] !== undefined) lines.push([name, options[name]]);
  }
  for (const [name, value] of Object.entries(options.limits ?? {})) lines.push([name, value]);
  return lines
    .map(([name, value]) => {
      if (/[\r\n]/.test(String(value)) || /[\r\n=]/.test(name))
        throw new TypeError(`invalid value of the option ${name}: it contains a line break`);
      return `${name}=${value}`;
    })
    .join('\n');
}

/** Returns the bytes of an option in memory, or the name of its file. */
function source(options, inMemory, fileName) {
  const value = options[inMemory];
  if (value === undefined)
    return options[fileName] === undefined ? undefined : String(options[fileName]);
  return Array.isArray(value)
    ? Buffer.concat(value.flatMap((part) => [Buffer.from(part), NEW_LINE]))
    : Buffer.from(value);
}

const NEW_LINE = Buffer.from('\n');
/** The pattern of crates/certificates. */
const LOCKED = /-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/;

/** Returns the private key, decrypted if there is a passphrase. */
function keyOf(kind, options) {
  const key = source(options, 'key', 'key_file_name');
  if (options.passphrase === undefined || key === undefined) return key;
  let pem;
  try {
    pem = typeof key === 'string' ? fs.readFileSync(key) : key;
  } catch {
    // The error is reported where all other files are read.
    return key;
  }
  if (!LOCKED.test(pem.toString('latin1'))) return key;
  try {
    const opened = createPrivateKey({ key: pem, format: 'pem', passphrase: options.passphrase });
    return Buffer.from(opened.export({ type: 'pkcs8', format: 'pem' }));
  } catch (error) {
    const name = typeof key === 'string' ? key : 'the key';
    throw new Error(`${kind}: ${name}: the passphrase does not open the key (${error.message})`, {
      cause: error,
    });
  }
}

const namesAuthorities = (options) =>
  options.ca_file_name !== undefined || options.ca !== undefined;
const asksClients = (options) =>
  options.request_cert ?? options.requestCert ?? namesAuthorities(options);

/**
 * Returns the mode of the addon: 0 if clients are not asked for a certificate, 1 if they are, 2 if
 * those without a trusted one are refused.
 */
function clientsOf(options) {
  if (!asksClients(options)) return { mode: 0, authorities: undefined };
  // Without authorities the trust roots of Node.js apply, as in node:https.
  const authorities = namesAuthorities(options)
    ? source(options, 'ca', 'ca_file_name')
    : Buffer.from(nodeTls.rootCertificates.join('\n'));
  const rejects = (options.reject_unauthorized ?? options.rejectUnauthorized) !== false;
  return { mode: rejects ? 2 : 1, authorities };
}

const CERTIFICATES = /-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/g;
const isBytes = (value) =>
  typeof value === 'string' || ArrayBuffer.isView(value) || value instanceof ArrayBuffer;

function isCertificate(pem) {
  try {
    new X509Certificate(pem);
    return true;
  } catch {
    return false;
  }
}

/**
 * Throws for an invalid `ca`, even if clients are not asked for a certificate and nothing else
 * reads it.
 */
function checkAuthorities(kind, { ca }, isAsked) {
  // Programs for node:https pass these values for no `ca`.
  if (ca === undefined || (!isAsked && (ca === null || ca.length === 0))) return;
  for (const part of [ca].flat()) {
    if (isBytes(part)) continue;
    const error = new TypeError(
      `${kind} takes as ca a string, a Buffer or a list of these, not ${part === null ? 'null' : typeof part}`,
    );
    throw Object.assign(error, { code: 'ERR_INVALID_ARG_TYPE' });
  }
  // The addon checks a `ca` that is used.
  if (isAsked || source({ ca }, 'ca').toString('latin1').match(CERTIFICATES)?.some(isCertificate))
    return;
  throw new Error(
    `${kind}: the authorities' certificates: contains no certificate in PEM form: give the certificates of the authorities that issue client certificates, in PEM form`,
  );
}

/** Returns the client certificate options, with earlier values for omitted ones. */
function mergedClients(before = {}, options) {
  const merged = {};
  for (let index = 0; index < CLIENTS.length; index += 2) {
    const pair = CLIENTS.slice(index, index + 2);
    const said = given(options, pair).length > 0 ? options : before;
    for (const name of pair) merged[name] = said[name];
  }
  return merged;
}

/**
 * Makes the addon load certificate and key for `app`, or only check them if there is no app.
 * `name`: their server name, `undefined` for all others. Returns whether there are any, and whether
 * clients are asked for a certificate.
 */
function setCertificate(kind, app, name, options) {
  const cert = source(options, 'cert', 'cert_file_name');
  const key = keyOf(kind, options);
  checkAuthorities(kind, options, asksClients(options));
  if (cert === undefined && key === undefined) {
    if (asksClients(options)) {
      throw new TypeError(
        `${kind} asks clients for a certificate and has none of its own: add key_file_name and cert_file_name`,
      );
    }
    return { isSet: false, asksClients: false };
  }
  if (cert === undefined || key === undefined) {
    const missing =
      cert === undefined
        ? 'certificate: add cert_file_name, or cert with the PEM itself'
        : 'key: add key_file_name, or key with the PEM itself';
    throw new TypeError(`${kind} has no ${missing}`);
  }
  const { mode, authorities } = clientsOf(options);
  try {
    native.setCertificate(app, name, cert, key, mode, authorities);
  } catch (error) {
    throw new Error(`${kind}: ${error.message}`, { cause: error });
  }
  return { isSet: true, asksClients: mode !== 0 };
}

module.exports = {
  check,
  warnWithoutTls,
  refuseClients,
  needsCertificate,
  settings,
  setCertificate,
  mergedClients,
  CERTIFICATE,
  CLIENTS,
  TLS,
  KNOWN,
  WITHOUT_EFFECT,
};
