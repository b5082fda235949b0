'use strict';

const { EventEmitter } = require('node:events');
const { clientOf } = require('../client');

/** What `socket` is to a request: who asks and over what. It belongs to this one request, not to a connection. */
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
    /** Whether the client has shown a certificate that is trusted. */
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

  /** The address that the server listens on. */
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

  /** `http/1.1`, `h2` or `h3`. */
  get alpnProtocol() {
    return this.encrypted ? this._head.protocol : false;
  }

  /** The name that the client asked for in TLS (SNI); false if it gave none. */
  get servername() {
    return this.encrypted ? this._head.serverName || false : undefined;
  }

  get readyState() {
    return this.destroyed ? 'closed' : 'open';
  }

  /** Whether the request came before the handshake was done, so that the client may send it again. */
  get earlyData() {
    return this._head.earlyData;
  }

  /** Bytes that were written and wait for room. */
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

  /** What the client has shown for itself, as node:tls has it; `{}` if that is nothing. */
  getPeerCertificate(isDetailed) {
    return this._client.peerCertificate(isDetailed);
  }

  /** The same as an X509Certificate; `undefined` if there is none. */
  getPeerX509Certificate() {
    return this._client.certificate;
  }

  /** `TLSv1.2` or `TLSv1.3`; `null` in clear text. */
  getProtocol() {
    return this._head.cipher?.version ?? null;
  }

  /** The cipher suite: `name`, `standardName` and `version`. */
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

  /** As node:http does: who listens at the request, the response or the server decides, and if nobody does the request ends. */
  _onTimeout() {
    const request = !this._request.complete && this._request.emit('timeout', this);
    const response = this._httpMessage.emit('timeout', this);
    const server = this.server !== undefined && this.server.emit('timeout', this);
    if (!request && !response && !server) this.destroy();
    this.emit('timeout');
  }

  /** Something has gone over the connection. */
  _active() {
    this._timer?.refresh();
  }

  /** Ends the request: resets the stream, over HTTP/1.1 closes the connection. */
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

  /** Its response is complete, and nothing more comes of the request. */
  _end() {
    if (this.destroyed || this._res._readsOn) return;
    this.destroyed = true;
    this.readable = this.writable = false;
    this.emit('close', false);
  }

  /** The client has left. As in node:http that is an error of the connection only where its request was not complete. */
  _left(error) {
    this._close(error, this._request.complete ? null : error);
  }

  /** `shown`: what is emitted here. */
  _close(error, shown = error) {
    if (this.destroyed) return;
    this.destroyed = true;
    this.readable = this.writable = false;
    clearTimeout(this._timer);
    const request = this._request;
    const response = this._httpMessage;
    if (!request.destroyed) request.destroy(error);
    process.nextTick(() => {
      if (shown !== undefined && shown !== null && this.listenerCount('error') > 0) this.emit('error', shown);
      this.emit('close', Boolean(shown));
      response._onClosed?.();
    });
  }

  /** Bytes that are no HTTP cannot be written: the protocols do not allow it. */
  write() {
    throw new TypeError('This socket stands for a request and takes no bytes of its own: write to the response.');
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
