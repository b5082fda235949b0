'use strict';

const native = require('./native');
const { usedAfterHandler, noFunction } = require('./errors');
const { recognizedText } = require('./text');

/** A request. It can be read while its handler runs. */
class HttpRequest {
  constructor(slot, route) {
    this._slot = slot;
    this._route = route;
    this._yield = false;
    this._method = undefined;
  }

  _check(call) {
    if (this._slot < 0) throw usedAfterHandler(`req.${call}()`);
    return this._slot;
  }

  getHeader(name) {
    const known = typeof name === 'string' ? name : recognizedText('req.getHeader()', name);
    return native.header(this._check('getHeader'), known);
  }

  getParameter(key) {
    const slot = this._check('getParameter');
    const index = typeof key === 'number' ? key : this._route.parameters.indexOf(String(key));
    return index < 0 ? undefined : native.parameter(slot, index);
  }

  getUrl() {
    return native.url(this._check('getUrl'));
  }

  getMethod() {
    return this.getCaseSensitiveMethod().toLowerCase();
  }

  getCaseSensitiveMethod() {
    const slot = this._check('getMethod');
    return (this._method ??= native.method(slot));
  }

  getQuery(key) {
    const slot = this._check('getQuery');
    return key === undefined ? native.query(slot) : native.queryValue(slot, String(key));
  }

  /** Returns `http/1.1`, `h2` or `h3`. */
  getProtocol() {
    return native.protocol(this._check('getProtocol'));
  }

  /** Returns the server name of the TLS handshake (SNI) in lower case; '' if there is none. */
  getServerName() {
    return native.serverName(this._check('getServerName'));
  }

  forEach(callback) {
    if (typeof callback !== 'function') throw noFunction('req.forEach()', callback);
    const lines = native.headers(this._check('forEach')).split('\0');
    for (let index = 0; index + 1 < lines.length; index += 2)
      callback(lines[index], lines[index + 1]);
  }

  /** Passes the request to the next matching route. */
  setYield(isYielding) {
    this._check('setYield');
    this._yield = Boolean(isYielding);
    return this;
  }
}

module.exports = { HttpRequest };
