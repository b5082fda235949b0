'use strict';

// Request heads and response headers for the framework interfaces (fetch, http).

const { isIPv6 } = require('node:net');
const native = require('./native');
const operations = require('./operations');
const { unpadded } = require('./text');

const PROTOCOLS = { 1: 'http/1.1', 2: 'h2', 3: 'h3' };
/** Methods by their digit in the head text. Other methods are written in full. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'];
/**
 * Cipher suites by their digit in the head text, with their IANA and OpenSSL names. The first is
 * clear text.
 */
const CIPHERS = [
  undefined,
  cipher('TLSv1.3', 'TLS_AES_128_GCM_SHA256'),
  cipher('TLSv1.3', 'TLS_AES_256_GCM_SHA384'),
  cipher('TLSv1.3', 'TLS_CHACHA20_POLY1305_SHA256'),
  cipher('TLSv1.2', 'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256', 'ECDHE-ECDSA-AES128-GCM-SHA256'),
  cipher('TLSv1.2', 'TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384', 'ECDHE-ECDSA-AES256-GCM-SHA384'),
  cipher(
    'TLSv1.2',
    'TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
  ),
  cipher('TLSv1.2', 'TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256'),
  cipher('TLSv1.2', 'TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384', 'ECDHE-RSA-AES256-GCM-SHA384'),
  cipher('TLSv1.2', 'TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-RSA-CHACHA20-POLY1305'),
];
/** Number of digits at the beginning: protocol, flags, method and cipher suite. */
const DIGITS = 4;
const SECURE = 1;
const EARLY_DATA = 2;
const UPGRADE = 4;
/** Indices of the parts after the URL; see crates/node/src/head.rs. */
const TARGET = 1;
const METHOD = 2;
const ADDRESS = 3;
const PORT = 4;
const SERVER_NAME = 5;
const LINES = 6;

function cipher(version, standardName, name = standardName) {
  return { name, standardName, version };
}

const digit = (text, index) => text.charCodeAt(index) - 48;

/**
 * The head of a request. Unlike HttpRequest it can be read at any time. It is parsed on first use.
 */
class Head {
  constructor(slot) {
    const text = native.head(slot);
    this._text = text;
    this._urlEnd = text.indexOf('\0', DIGITS);
    this._parts = undefined;
    this.version = digit(text, 0);
    this.method = METHODS[digit(text, 2)] ?? this._part(METHOD);
  }

  _all() {
    return (this._parts ??= this._text.split('\0'));
  }

  _part(index) {
    return this._all()[index];
  }

  /**
   * Returns the URL if it is the concatenation of scheme, host and target without parsing;
   * otherwise ''.
   */
  get plainUrl() {
    return this._text.slice(DIGITS, this._urlEnd);
  }

  /** Returns the path and query; `*` for the whole server. */
  get target() {
    if (this._urlEnd === DIGITS) return this._part(TARGET);
    const path = this._text.indexOf('/', DIGITS + 'https://'.length);
    return this._text.slice(path, this._urlEnd);
  }

  get encrypted() {
    return (digit(this._text, 1) & SECURE) !== 0;
  }

  get earlyData() {
    return (digit(this._text, 1) & EARLY_DATA) !== 0;
  }

  /**
   * Returns the TLS `version`, such as TLSv1.3, and the cipher suite's `name` and `standardName`;
   * `undefined` in clear text.
   */
  get cipher() {
    return CIPHERS[digit(this._text, 3)];
  }

  /** Returns whether the request asks for another protocol. */
  get asksForUpgrade() {
    return (digit(this._text, 1) & UPGRADE) !== 0;
  }

  /** Returns the client's IP address. */
  get address() {
    return this._part(ADDRESS);
  }

  get port() {
    return Number(this._part(PORT));
  }

  /** Returns the server name of the TLS handshake; '' if the client sent none. */
  get serverName() {
    return this._part(SERVER_NAME);
  }

  /** Returns `http/1.1`, `h2` or `h3`. */
  get protocol() {
    return PROTOCOLS[this.version];
  }

  get family() {
    return isIPv6(this.address) ? 'IPv6' : 'IPv4';
  }

  /** Returns names and values of all header lines, alternating. */
  lines() {
    return this._all().slice(LINES);
  }

  /** Returns the value of the first header line with this name. */
  first(name) {
    const parts = this._all();
    for (let index = LINES; index < parts.length; index += 2) {
      if (parts[index] === name) return parts[index + 1];
    }
    return undefined;
  }
}

/** Returns names and values of the trailers, alternating. */
function trailersOf(slot) {
  return native.trailers(slot).split('\0').slice(1);
}

const NOT_ASCII = /[^\0-\x7f]/;

/** Adds a header line under the rules of node:http and fetch: each character is a byte. */
function writeField(slot, name, value) {
  if (NOT_ASCII.test(value)) native.writeField(slot, name, Buffer.from(unpadded(value), 'latin1'));
  else operations.field(slot, name, value);
}

module.exports = { Head, trailersOf, writeField };
