'use strict';

const fs = require('node:fs');
const { createPrivateKey } = require('node:crypto');
const { nearest } = require('./errors');

const TLS = ['key_file_name', 'cert_file_name', 'key', 'cert', 'passphrase'];
/** Taken from programs for uWebSockets.js; docs/node/differences.md says why they change nothing. */
const WITHOUT_EFFECT = ['dh_params_file_name', 'ssl_ciphers', 'ssl_prefer_low_memory_usage'];
const SETTINGS = ['server', 'earlyData', 'congestion'];
const OWN = ['limits', 'onError'];
const KNOWN = [...TLS, ...WITHOUT_EFFECT, 'ca_file_name', ...SETTINGS, ...OWN];

/** Throws for what is no option of `kind`. */
function check(kind, options, known = KNOWN) {
  if (options === null || typeof options !== 'object') {
    throw new TypeError(`${kind} takes an object of options, not ${options === null ? 'null' : typeof options}.`);
  }
  for (const name of Object.keys(options)) {
    if (known.includes(name)) continue;
    const like = nearest(name, known);
    throw new TypeError(
      `${kind} has no option ${JSON.stringify(name)}${like === undefined ? `: it has ${known.join(', ')}` : `; did you mean ${JSON.stringify(like)}`}${like === undefined ? '.' : '?'}`,
    );
  }
  if (options.ca_file_name !== undefined) {
    throw new TypeError(
      'ca_file_name would have clients show certificates, which pronghorn does not ask for: leave it out, or check clients otherwise.',
    );
  }
}

/** Programs for uWebSockets.js give a certificate to an App as well; who means it to be shown shall know. */
function warnWithoutTls(kind, options) {
  const given = TLS.filter((name) => options[name] !== undefined && name !== 'passphrase');
  if (given.length === 0) return;
  process.emitWarning(
    `${kind} speaks clear text: ${given.join(' and ')} have no effect. SSLApp, H3App and Server have TLS.`,
    'PronghornWarning',
  );
}

/** What the native part takes: lines of name=value. */
function settings(options) {
  const lines = [];
  for (const name of SETTINGS) {
    if (options[name] !== undefined) lines.push([name, options[name]]);
  }
  for (const [name, value] of Object.entries(options.limits ?? {})) lines.push([name, value]);
  return lines
    .map(([name, value]) => {
      if (/[\r\n]/.test(String(value)) || /[\r\n=]/.test(name))
        throw new TypeError(`The value of ${name} has a line break.`);
      return `${name}=${value}`;
    })
    .join('\n');
}

function read(kind, options, inMemory, fileName) {
  if (options[inMemory] !== undefined) return options[inMemory];
  if (options[fileName] === undefined) return undefined;
  try {
    return fs.readFileSync(options[fileName]);
  } catch (error) {
    throw new Error(`${kind}: ${fileName} cannot be read: ${error.message}`, { cause: error });
  }
}

/** Chain in PEM and key in DER, or `undefined` where there are none. */
function identity(kind, options) {
  const chain = read(kind, options, 'cert', 'cert_file_name');
  const pem = read(kind, options, 'key', 'key_file_name');
  if (chain === undefined && pem === undefined) return undefined;
  if (chain === undefined || pem === undefined) {
    const missing =
      chain === undefined
        ? 'certificate: add cert_file_name, or cert with the PEM itself'
        : 'key: add key_file_name, or key with the PEM itself';
    throw new TypeError(`${kind} has no ${missing}.`);
  }
  let key;
  try {
    key = createPrivateKey({ key: pem, format: 'pem', passphrase: options.passphrase });
  } catch (error) {
    const isLocked =
      error.code === 'ERR_MISSING_PASSPHRASE' || /passphrase|bad decrypt|interrupted or cancelled/i.test(error.message);
    const hint = isLocked
      ? 'it is encrypted: give its passphrase'
      : 'it has to be in PEM form (-----BEGIN PRIVATE KEY-----)';
    throw new Error(`${kind}: the private key cannot be used: ${hint} (${error.message})`, { cause: error });
  }
  return {
    chain: typeof chain === 'string' ? chain : new Uint8Array(chain),
    key: new Uint8Array(key.export({ type: 'pkcs8', format: 'der' })),
  };
}

module.exports = { check, warnWithoutTls, settings, identity, TLS, WITHOUT_EFFECT };
