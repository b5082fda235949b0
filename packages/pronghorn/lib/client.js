'use strict';

// What a client has shown for itself in TLS, as Node.js shows it.

const { X509Certificate } = require('node:crypto');
const native = require('./native');

/** Clients of which the certificates are kept that were taken apart. */
const MAX_KNOWN = 1024;
const known = new Map();

/** Certificates that a client has shown, its own first. What is asked of them is made when it is first asked for. */
class Chain {
  constructor(slot) {
    this._ders = [];
    for (let der; (der = native.clientCertificate(slot, this._ders.length)) !== undefined;) this._ders.push(der);
    this._certificates = [];
  }

  certificate(index) {
    const der = this._ders[index];
    return der === undefined ? undefined : (this._certificates[index] ??= new X509Certificate(Buffer.from(der)));
  }

  /** In the form that `getPeerCertificate()` has; `isDetailed`: with those of the issuers. */
  legacy(isDetailed) {
    const shown = this._ders.map((_, index) => this.certificate(index).toLegacyObject());
    if (!isDetailed) return shown[0];
    shown.forEach((one, index) => {
      const issuer = shown[index + 1];
      // One who has signed himself is his own.
      if (issuer !== undefined) one.issuerCertificate = issuer;
      else if (this.certificate(index).checkIssued(this.certificate(index))) one.issuerCertificate = one;
    });
    return shown[0];
  }
}

class Client {
  constructor(standing, chain) {
    this.authorized = standing === 'OK';
    /** Why it is not trusted, as node:https says it; `null` if it is, and if it was not asked. */
    this.authorizationError = standing === '' || standing === 'OK' ? null : standing;
    this._chain = chain;
  }

  /** An X509Certificate, or `undefined`. */
  get certificate() {
    return this._chain?.certificate(0);
  }

  /** What `getPeerCertificate` of a socket returns. */
  peerCertificate(isDetailed) {
    return this._chain?.legacy(isDetailed) ?? {};
  }
}

/** Of those who were not asked. */
const STRANGER = new Client('', undefined);

/** The client of a request, whose handler has not returned. */
function clientOf(res) {
  if (!res._route.app._asksClients) return STRANGER;
  const [standing, fingerprint] = native.clientStanding(res._slot).split(' ');
  return new Client(standing, fingerprint === '' ? undefined : chainOf(res._slot, fingerprint));
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

/** The certificate itself in PEM form; '' if there is none. */
function pemOf(slot) {
  const der = native.clientCertificate(slot, 0);
  if (der === undefined) return '';
  const lines = Buffer.from(der)
    .toString('base64')
    .match(/.{1,64}/g);
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

module.exports = { clientOf, pemOf, STRANGER };
