'use strict';

// Client certificates, in the forms that Node.js has.

const { X509Certificate } = require('node:crypto');
const native = require('./native');

/** Maximum number of certificate chains that are kept parsed. */
const MAX_KNOWN = 1024;
const known = new Map();

/**
 * The certificate chain that a client sent, its own certificate first. Certificates are parsed on
 * first use.
 */
class Chain {
  constructor(slot) {
    this._ders = [];
    for (let der; (der = native.clientCertificate(slot, this._ders.length)) !== undefined;)
      this._ders.push(der);
    this._certificates = [];
  }

  certificate(index) {
    const der = this._ders[index];
    return der === undefined
      ? undefined
      : (this._certificates[index] ??= new X509Certificate(Buffer.from(der)));
  }

  /** Returns the form of `getPeerCertificate()`; `isDetailed`: with the issuers. */
  legacy(isDetailed) {
    const shown = this._ders.map((_, index) => this.certificate(index).toLegacyObject());
    if (!isDetailed) return shown[0];
    shown.forEach((one, index) => {
      const issuer = shown[index + 1];
      // A self-signed certificate is its own issuer.
      if (issuer !== undefined) one.issuerCertificate = issuer;
      else if (this.certificate(index).checkIssued(this.certificate(index)))
        one.issuerCertificate = one;
    });
    return shown[0];
  }
}

class Client {
  constructor(status, chain) {
    this.authorized = status === 'OK';
    /** Error code of node:https; `null` if the client is trusted, or was not asked. */
    this.authorizationError = status === '' || status === 'OK' ? null : status;
    this._chain = chain;
  }

  /** Returns an X509Certificate, or `undefined`. */
  get certificate() {
    return this._chain?.certificate(0);
  }

  /** Returns the result of a socket's `getPeerCertificate`. */
  peerCertificate(isDetailed) {
    return this._chain?.legacy(isDetailed) ?? {};
  }
}

/** A client that was not asked for a certificate. */
const ANONYMOUS = new Client('', undefined);

/** Returns the client of a request, while its handler runs. */
function clientOf(res) {
  if (!res._route.app._asksClients) return ANONYMOUS;
  const [status, fingerprint] = native.clientCertificateStatus(res._slot).split(' ');
  return new Client(status, fingerprint === '' ? undefined : chainOf(res._slot, fingerprint));
}

function chainOf(slot, fingerprint) {
  let chain = known.get(fingerprint);
  if (chain === undefined) {
    chain = new Chain(slot);
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(fingerprint, chain);
  }
  return chain;
}

/** Returns the client's certificate in PEM form; '' if there is none. */
function pemOf(slot) {
  const der = native.clientCertificate(slot, 0);
  if (der === undefined) return '';
  const lines = Buffer.from(der)
    .toString('base64')
    .match(/.{1,64}/g);
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

module.exports = { clientOf, pemOf, ANONYMOUS };
