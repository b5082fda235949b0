'use strict';

const { EventEmitter } = require('node:events');
const { clientOf } = require('../client');

/**
 * The `socket` of a request: its client and protocol. It belongs to one request, not to a
 * connection.
 */
class Socket extends EventEmitter {
  constructor(head, res, server) {
    super();
    this._head = head;
    /** The HttpResponse underneath. */
    this._res = res;
    this.server = server;
    /** The IncomingMessage and the ServerResponse. */
    this.parser = null;
    this._request = undefined;
    this._httpMessage = undefined;
    this.encrypted = head.encrypted;
    this._client = clientOf(res);
    /** Whether the client sent a trusted certificate. */
    this.authorized = this._client.authorized;
    if (this.encrypted) this.authorizationError = this._client.authorizationError;
    this.destroyed = false;
    this.readable = true;
    this.writable = true;
    this.connecting = false;
    this.timeout = 0;
    this._timer = undefined;
    this._local = undefined;
  }

  get remoteAddress() {
    return this._head.address;
  }

  get remotePort() {
    return this._head.port;
  }

  get remoteFamily() {
    return this._head.family;
  }

  /** Returns the address that the server listens on. */
  address() {
    return (this._local ??= this.server?.address() ?? {});
  }

  get localAddress() {
    return this.address().address;
  }

  get localPort() {
    return this.address().port;
  }

  get localFamily() {
    return this.address().family;
  }

  /** Returns `http/1.1`, `h2` or `h3`; false in clear text. */
  get alpnProtocol() {
    return this.encrypted ? this._head.protocol : false;
  }

  /** Returns the server name of the TLS handshake (SNI); false if the client sent none. */
  get servername() {
    return this.encrypted ? this._head.serverName || false : undefined;
  }

  get readyState() {
    return this.destroyed ? 'closed' : 'open';
  }

  /** Returns whether the request arrived in 0-RTT, where an attacker can replay it. */
  get earlyData() {
    return this._head.earlyData;
  }

  /** Returns the number of written bytes that are buffered. */
  get writableLength() {
    return this._httpMessage?._waiting ?? 0;
  }

  get bufferSize() {
    return this.writableLength;
  }

  get writableHighWaterMark() {
    return 65536;
  }

  get readableHighWaterMark() {
    return 65536;
  }

  /** Returns the client's certificate in the form of node:tls; `{}` if there is none. */
  getPeerCertificate(isDetailed) {
    return this._client.peerCertificate(isDetailed);
  }

  /** Returns the client's certificate as an X509Certificate; `undefined` if there is none. */
  getPeerX509Certificate() {
    return this._client.certificate;
  }

  /** Returns `TLSv1.2` or `TLSv1.3`; `null` in clear text. */
  getProtocol() {
    return this._head.cipher?.version ?? null;
  }

  /** Returns `name`, `standardName` and `version` of the cipher suite. */
  getCipher() {
    const { cipher } = this._head;
    return cipher === undefined ? {} : { ...cipher };
  }

  setTimeout(milliseconds, callback) {
    clearTimeout(this._timer);
    this.timeout = milliseconds;
    if (callback !== undefined) this.once('timeout', callback);
    if (milliseconds > 0 && !this.destroyed) {
      this._timer = setTimeout(() => this._onTimeout(), milliseconds);
      this._timer.unref();
    }
    return this;
  }

  /**
   * Emits 'timeout' on request, response and server. As in node:http, the request ends if none has
   * a listener.
   */
  _onTimeout() {
    const request = !this._request.complete && this._request.emit('timeout', this);
    const response = this._httpMessage.emit('timeout', this);
    const server = this.server !== undefined && this.server.emit('timeout', this);
    if (!request && !response && !server) this.destroy();
    this.emit('timeout');
  }

  /** Restarts the timeout after activity. */
  _active() {
    this._timer?.refresh();
  }

  /** Ends the request: resets the stream, or closes the connection over HTTP/1.1. */
  destroy(error) {
    if (this.destroyed) return this;
    this._close(error);
    if (!this._res._done) this._res.close();
    return this;
  }

  destroySoon() {
    return this.destroy();
  }

  resetAndDestroy() {
    return this.destroy();
  }

  end() {
    return this.destroy();
  }

  /** Closes the socket of a complete exchange. */
  _end() {
    if (this.destroyed || this._res._readsAfterResponse) return;
    this.destroyed = true;
    this.readable = this.writable = false;
    this.emit('close', false);
  }

  /**
   * Handles a client that has left. As in node:http, that is an error only if its request was
   * incomplete.
   */
  _left(error) {
    this._close(error, this._request.complete ? null : error);
  }

  /** `shown`: the error to emit on the socket. */
  _close(error, shown = error) {
    if (this.destroyed) return;
    this.destroyed = true;
    this.readable = this.writable = false;
    clearTimeout(this._timer);
    const request = this._request;
    const response = this._httpMessage;
    if (!request.destroyed) request.destroy(error);
    process.nextTick(() => {
      if (shown !== undefined && shown !== null && this.listenerCount('error') > 0)
        this.emit('error', shown);
      this.emit('close', Boolean(shown));
      response._onClosed?.();
    });
  }

  /** Throws: raw bytes cannot be written in any of the protocols. */
  write() {
    throw new TypeError(
      'this socket belongs to a request and takes no raw bytes: write to the response',
    );
  }

  cork() {}
  uncork() {}
  pause() {
    return this;
  }
  resume() {
    return this;
  }
  setNoDelay() {
    return this;
  }
  setKeepAlive() {
    return this;
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
}

module.exports = { Socket };
