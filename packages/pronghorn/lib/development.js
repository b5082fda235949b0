'use strict';

// The development certificate, which browsers accept by its hash.

const { X509Certificate } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const native = require('./native');

/** A certificate that can be spread into options: only the two file names are enumerable. */
class DevelopmentCertificate {
  #spkiSha256;
  #certificate;

  constructor({ folder, spkiSha256 }) {
    this.key_file_name = path.join(folder, 'key.pem');
    this.cert_file_name = path.join(folder, 'cert.pem');
    this.#spkiSha256 = spkiSha256;
    this.#certificate = new X509Certificate(fs.readFileSync(this.cert_file_name));
  }

  /** SHA-256 of the public key in base64, for Chromium's --ignore-certificate-errors-spki-list. */
  get spkiSha256() {
    return this.#spkiSha256;
  }

  /** SHA-256 of the certificate in base64, for `serverCertificateHashes` of WebTransport. */
  get sha256() {
    return Buffer.from(this.#certificate.fingerprint256.replaceAll(':', ''), 'hex').toString(
      'base64',
    );
  }

  /** Time at which the certificate expires. */
  get validTo() {
    return new Date(this.#certificate.validTo);
  }

  /**
   * Returns flags that make Chromium accept the certificate, and use HTTP/3 at once on this port.
   */
  chromiumFlags(port) {
    if (!Number.isInteger(port) || port < 1 || port > 65535) {
      throw new TypeError(
        `chromiumFlags() takes the port that the app listens on, not ${JSON.stringify(port)}: us_socket_local_port() returns it`,
      );
    }
    return [
      `--user-data-dir=${path.join(path.dirname(this.cert_file_name), 'chromium')}`,
      `--ignore-certificate-errors-spki-list=${this.#spkiSha256}`,
      `--origin-to-force-quic-on=localhost:${port}`,
    ];
  }
}

/**
 * Returns the user's development certificate, created if there is none or it expires within a day:
 * for localhost, the loopback addresses and this machine's name. It is valid for 13 days, because
 * browsers accept certificates by their hash only if they are valid for 14 days at most.
 */
function developmentCertificate(options = {}) {
  if (options === null || typeof options !== 'object') {
    throw new TypeError('developmentCertificate() takes { folder }, or nothing');
  }
  const { folder, ...unknown } = options;
  for (const name of Object.keys(unknown)) {
    throw new TypeError(
      `developmentCertificate() has no option ${JSON.stringify(name)}: it has folder`,
    );
  }
  if (folder !== undefined && (typeof folder !== 'string' || folder === '')) {
    throw new TypeError(
      `developmentCertificate() takes the name of a folder, not ${JSON.stringify(folder)}`,
    );
  }
  return new DevelopmentCertificate(
    native.developmentCertificate(folder === undefined ? undefined : path.resolve(folder)),
  );
}

module.exports = { developmentCertificate };
