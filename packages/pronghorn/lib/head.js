'use strict';

// What the doors for frameworks read of a request and write of a response, beside the API of uWebSockets.js.

const { isIPv6 } = require('node:net');
const native = require('./native');
const answers = require('./answers');

const PROTOCOLS = { 1: 'http/1.1', 2: 'h2', 3: 'h3' };
/** Method, target, protocol, flags, address, port and server name stand before the field lines; see crates/node/src/api/frameworks.rs. */
const BEFORE_LINES = 7;

/** The head of a request. Unlike HttpRequest it can be read at any time. */
class Head {
  constructor(slot) {
    const parts = native.head(slot).split('\0');
    this.method = parts[0];
    /** The path and the query; `*` for the whole server. */
    this.target = parts[1];
    this.version = Number(parts[2]);
    this.encrypted = parts[3].includes('s');
    this.earlyData = parts[3].includes('e');
    this.address = parts[4];
    this.port = Number(parts[5]);
    /** The name that TLS was asked for; '' if it was asked for none. */
    this.serverName = parts[6];
    this._parts = parts;
  }

  /** `http/1.1`, `h2` or `h3`. */
  get protocol() {
    return PROTOCOLS[this.version];
  }

  get family() {
    return isIPv6(this.address) ? 'IPv6' : 'IPv4';
  }

  /** Names and values of all field lines, one after the other. */
  lines() {
    return this._parts.slice(BEFORE_LINES);
  }

  /** The value of the first line of this name. */
  first(name) {
    const parts = this._parts;
    for (let index = BEFORE_LINES; index < parts.length; index += 2) {
      if (parts[index] === name) return parts[index + 1];
    }
    return undefined;
  }
}

/** Names and values of what came behind the content. */
function trailersOf(slot) {
  return native.trailers(slot).split('\0').slice(1);
}

const NOT_ASCII = /[^\0-\x7f]/;

/** Adds a field line as node:http and fetch mean it: each character is a byte. */
function writeField(slot, name, value) {
  if (NOT_ASCII.test(value)) native.writeField(slot, name, Buffer.from(value, 'latin1'));
  else answers.field(slot, name, value);
}

module.exports = { Head, trailersOf, writeField };
