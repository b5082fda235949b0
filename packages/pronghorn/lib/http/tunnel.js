'use strict';

// Sockets of the event `upgrade`, with the interface of node:http: programs write their response to
// them as HTTP/1.1 bytes, and continue in another protocol. The response is parsed here, because
// HTTP/2 and HTTP/3 encode it differently. The native counterpart is crates/node/src/tunnel.rs.

const { Duplex } = require('node:stream');
const native = require('../native');
const operations = require('../operations');
const { writeField } = require('../head');
const { HeadReader, malformed, quoted } = require('./response-parser');
const { Socket } = require('./socket');

/** Events of a tunnel. */
const READABLE = 0;
const WRITABLE = 1;
const FINISHED = 2;
const FAILED = 3;

/** States of the response. */
const AWAITED = 0;
/** The upgrade is accepted: writes are bytes of the other protocol. */
const GRANTED = 1;
/** The upgrade is refused: writes are the body of an ordinary response. */
const REFUSED = 2;

const SWITCHING_PROTOCOLS = 101;
/** Headers that the engine sets: message framing and the HTTP/1.1 connection. */
const OF_THE_CONNECTION = ['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding'];

/** Open tunnels, by number. */
const tunnels = new Map();

function failure(code, text) {
  return Object.assign(new Error(text), { code });
}

const reset = () => failure('ECONNRESET', 'read ECONNRESET');

class UpgradeSocket extends Duplex {
  /**
   * `connection`: the Socket of the request, with the client. `asked`: the first protocol of the
   * request.
   */
  constructor(connection, asked) {
    // As with net.Socket, `close` is emitted with whether there was an error.
    super({ allowHalfOpen: true, emitClose: false });
    this._connection = connection;
    this._asked = asked;
    /** The HttpResponse underneath, whose context is that of all events. */
    this._res = connection._res;
    this._head = connection._head;
    this.server = connection.server;
    this.parser = null;
    this._httpMessage = null;
    this._request = undefined;
    this.connecting = false;
    this.timeout = 0;
    this.bytesRead = 0;
    this._bytesGiven = 0;
    this._timer = undefined;
    this._answer = AWAITED;
    this._reader = new HeadReader();
    /** The body framing of a refusal. */
    this._content = undefined;
    this._number = -1;
    this._wantsRead = false;
    /** Callbacks for capacity, and for the end of sending. */
    this._flushed = undefined;
    this._finished = undefined;
    this._isReset = false;
    /** The response is sent elsewhere. */
    this._isLeft = false;
  }

  // ---- writing

  _write(chunk, _encoding, callback) {
    this._active();
    const done = (error) => {
      if (!error) this._bytesGiven += chunk.length;
      callback(error);
    };
    try {
      if (this._answer === AWAITED) this._readHead(chunk, done);
      else this._pass(chunk, done);
    } catch (error) {
      // The bytes written so far are ambiguous and cannot be taken back.
      this._isReset = true;
      done(error);
    }
  }

  _writev(chunks, callback) {
    this._write(Buffer.concat(chunks.map(({ chunk }) => chunk)), 'buffer', callback);
  }

  _readHead(chunk, done) {
    let rest = chunk;
    for (;;) {
      const read = this._reader.add(rest);
      if (read === undefined) return done();
      rest = read.rest;
      if (read.head.status === SWITCHING_PROTOCOLS) {
        this._grant(read.head);
        break;
      }
      if (read.head.status >= 200) {
        this._refuse(read.head);
        break;
      }
      this._inform(read.head);
      this._reader = new HeadReader();
    }
    this._reader = undefined;
    if (rest.length === 0 || this.destroyed) return done();
    return this._pass(rest, done);
  }

  /** Sends an interim response. 100 is skipped, because the request has no body. */
  _inform({ status, fields }) {
    const lines = [];
    for (let index = 0; index < fields.length; index += 2)
      lines.push(`${fields[index]}: ${fields[index + 1]}`);
    if (status !== 100 && !this._res._done)
      native.inform(this._res._slot, status, lines.join('\n'));
  }

  _grant(head) {
    const { _res: res } = this;
    this._answer = GRANTED;
    if (res._done) return;
    const isHttp1 = this._head.version === 1;
    const [chosen = this._asked] = head.all('upgrade');
    if (chosen.toLowerCase() !== this._asked) {
      throw malformed(
        `101 with the protocol ${quoted(chosen)}, and the client's first protocol is ${this._asked}`,
      );
    }
    // RFC 8441, section 5: HTTP/2 and HTTP/3 have no key, and no accept header.
    const left = [...OF_THE_CONNECTION, 'content-length', isHttp1 ? '' : 'sec-websocket-accept'];
    this._writeFields(head, left);
    const number = native.tunnelOpen(res._slot);
    res._handOver();
    if (number === undefined) {
      // The client has left; its event is pending.
      res.emitDestroy();
      process.nextTick(() => this.destroy(reset()));
      return;
    }
    this._number = number;
    tunnels.set(number, this);
    // Reads without a listener, like sockets of node:http, to notice the end.
    if (this._wantsRead) native.tunnelRead(number);
    else this.read(0);
  }

  _refuse(head) {
    const { _res: res } = this;
    const content = head.content();
    this._answer = REFUSED;
    this._content = content;
    if (res._done) return;
    operations.status(res._slot, head.status);
    this._writeFields(head, [
      ...OF_THE_CONNECTION,
      ...(this._head.version === 1 ? [] : ['upgrade']),
    ]);
    if (content.isComplete) this._complete();
  }

  _writeFields({ fields }, left) {
    for (let index = 0; index < fields.length; index += 2) {
      if (!left.includes(fields[index]))
        writeField(this._res._slot, fields[index], fields[index + 1]);
    }
  }

  /** Passes on bytes after the head. */
  _pass(chunk, done) {
    if (this._answer === GRANTED) {
      if (this._number < 0 || native.tunnelWrite(this._number, chunk)) done();
      else this._flushed = done;
      return;
    }
    const { _res: res, _content: content } = this;
    if (res._done) return done();
    const pieces = content.add(chunk);
    if (content.isComplete) {
      this._complete(pieces.length === 1 ? pieces[0] : Buffer.concat(pieces));
      return done();
    }
    let hasRoom = true;
    for (const piece of pieces) hasRoom = res.write(piece);
    if (hasRoom) return done();
    this._flushed = done;
    res.onWritable(() => this._flush());
  }

  _flush() {
    const done = this._flushed;
    this._flushed = undefined;
    this._active();
    done?.();
  }

  /** Completes a refusal. As in node:http, it is the last response of its connection. */
  _complete(chunk = '') {
    const { _res: res } = this;
    if (!res._done) res.end(chunk, true);
    // The client has everything, and is about to leave.
    setImmediate(() => {
      if (!this.writableEnded) this.destroy();
    });
  }

  _final(callback) {
    if (this._answer === GRANTED) {
      if (this._number < 0) return callback();
      this._finished = callback;
      native.tunnelFinish(this._number);
      return;
    }
    if (this._answer === REFUSED) {
      if (this._content.endsWithSocket) this._complete();
      else if (!this._content.isComplete) return this._cutShort(callback, 'its body is incomplete');
    } else if (!this._reader.isEmpty) {
      return this._cutShort(callback, 'its head is incomplete');
    }
    callback();
    // After 'finish'. Without a response the connection just closes.
    process.nextTick(() => this.destroy());
  }

  _cutShort(callback, why) {
    this._isReset = true;
    callback(malformed(`the socket was ended, and ${why}`));
  }

  // ---- reading

  _read() {
    this._wantsRead = true;
    if (this._number >= 0) native.tunnelRead(this._number);
  }

  _receive(hasEnded) {
    const chunk = native.tunnelTake(this._number);
    this._active();
    this._wantsRead = false;
    this.bytesRead += chunk.byteLength;
    if (chunk.byteLength > 0) this.push(Buffer.from(chunk));
    if (!hasEnded || this.destroyed) return;
    this.push(null);
    this.read(0);
    if (this.writableFinished) this._leaveUnread();
    else this.once('finish', this._leaveUnread);
  }

  /**
   * Both directions have ended: discards data that is not being read. node:http passes the first
   * bytes as `head`.
   */
  _leaveUnread() {
    if (this.readableFlowing === null && this.listenerCount('readable') === 0) this.destroy();
  }

  // ---- the end

  _destroy(error, callback) {
    clearTimeout(this._timer);
    const { _res: res, _number: number } = this;
    this._number = -1;
    if (number >= 0) {
      tunnels.delete(number);
      native.tunnelEnd(number, this._isReset);
      res.emitDestroy();
    } else if (!res._done && !this._isLeft) {
      // Earlier writes are sent, as the kernel would do.
      if (this._answer === REFUSED && this._content.endsWithSocket && !this._isReset)
        res.end('', true);
      else res.close();
    }
    const [flushed, finished] = [this._flushed, this._finished];
    this._flushed = this._finished = undefined;
    const cut = flushed ?? finished;
    if (cut !== undefined)
      process.nextTick(cut, error ?? failure('ERR_STREAM_DESTROYED', 'The socket was destroyed'));
    callback(error);
    process.nextTick(() => this.emit('close', Boolean(error)));
  }

  /** Handles a client that left before or during the response. */
  _left() {
    if (this.destroyed) return;
    this.push(null);
    // After 'end', if the socket is being read.
    setImmediate(() => this.destroy());
  }

  /**
   * Handles an exception of an 'upgrade' listener. A request without a response gets 500 elsewhere.
   */
  _fail() {
    this._isLeft = this._answer !== GRANTED && !this._res._begun;
    this.destroy();
  }

  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', this.destroy);
  }

  /** Resets the stream, or closes the connection over HTTP/1.1. Unsent bytes are lost. */
  resetAndDestroy() {
    this._isReset = true;
    return this.destroy();
  }

  /**
   * Reports exceptions of listeners, which end only this socket. ECONNRESET without a listener is
   * ignored.
   */
  emit(event, ...given) {
    if (event === 'error' && this.listenerCount('error') === 0) {
      if (given[0]?.code !== 'ECONNRESET') this._report(given[0]);
      return false;
    }
    try {
      return super.emit(event, ...given);
    } catch (error) {
      this._report(error);
      this.destroy();
      return true;
    }
  }

  _report(error) {
    const { app, pattern } = this._res._route;
    app._report(error, `upgrade ${this._request?.url ?? pattern}`);
  }

  // ---- interface of net.Socket

  get pending() {
    return false;
  }

  get readyState() {
    const { readable, writable } = this;
    if (readable && writable) return 'open';
    return readable ? 'readOnly' : writable ? 'writeOnly' : 'closed';
  }

  get bufferSize() {
    return this.writableLength;
  }

  get bytesWritten() {
    return this._bytesGiven + this.writableLength;
  }

  setTimeout(milliseconds, callback) {
    clearTimeout(this._timer);
    this.timeout = milliseconds;
    if (callback !== undefined) {
      if (milliseconds > 0) this.once('timeout', callback);
      else this.removeListener('timeout', callback);
    }
    if (milliseconds > 0 && !this.destroyed) {
      this._timer = setTimeout(() => this.emit('timeout'), milliseconds);
      this._timer.unref();
    }
    return this;
  }

  _active() {
    this._timer?.refresh();
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

// The client and protocol are those of the request's Socket.
for (const name of Object.getOwnPropertyNames(Socket.prototype)) {
  if (name.startsWith('_') || name in UpgradeSocket.prototype) continue;
  const { value } = Object.getOwnPropertyDescriptor(Socket.prototype, name);
  const property =
    typeof value === 'function'
      ? {
          value(...given) {
            return this._connection[name](...given);
          },
          writable: true,
        }
      : {
          get() {
            return this._connection[name];
          },
        };
  Object.defineProperty(UpgradeSocket.prototype, name, { ...property, configurable: true });
}

for (const name of ['encrypted', 'authorized', 'authorizationError']) {
  Object.defineProperty(UpgradeSocket.prototype, name, {
    get() {
      return this._connection[name];
    },
    configurable: true,
  });
}

/** Handles an event of the addon. */
function onTunnelEvent(number, what, hasEnded) {
  const socket = tunnels.get(number);
  if (socket !== undefined) socket._res.runInAsyncScope(change, undefined, socket, what, hasEnded);
}

function change(socket, what, hasEnded) {
  switch (what) {
    case READABLE:
      socket._receive(hasEnded);
      break;
    case WRITABLE:
      socket._flush();
      break;
    case FINISHED: {
      const finished = socket._finished;
      socket._finished = undefined;
      finished?.();
      break;
    }
    default:
      socket.destroy(what === FAILED ? reset() : undefined);
  }
}

module.exports = { UpgradeSocket, onTunnelEvent };
