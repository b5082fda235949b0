'use strict';

// Sockets of the event `upgrade`, as programs for node:http have them: they write their answer into them as bytes of HTTP/1.1, and go on in
// another protocol. Here the answer is taken apart, since over HTTP/2 and HTTP/3 it has another form. The other side is crates/node/src/tunnel.rs.

const { Duplex } = require('node:stream');
const native = require('../native');
const answers = require('../answers');
const { writeField } = require('../head');
const { HeadReader, malformed, shown } = require('./written');
const { Socket } = require('./socket');

/** What the native part says of a tunnel. */
const READABLE = 0;
const WRITABLE = 1;
const FINISHED = 2;
const FAILED = 3;

/** What becomes of the answer. */
const AWAITED = 0;
/** The upgrade is granted: what is written are bytes of the other protocol. */
const GRANTED = 1;
/** It is refused: what is written is content of an ordinary response. */
const REFUSED = 2;

const SWITCHING_PROTOCOLS = 101;
/** Fields that are the engine's: how a message is delimited, and what a connection of HTTP/1.1 is told. */
const OF_THE_CONNECTION = ['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding'];

/** Tunnels that are open, by number. */
const tunnels = new Map();

function failure(code, text) {
  return Object.assign(new Error(text), { code });
}

const reset = () => failure('ECONNRESET', 'read ECONNRESET');

class UpgradeSocket extends Duplex {
  /** `connection`: what a request of this door has for its socket, which says who asks. `asked`: the first protocol that the request names. */
  constructor(connection, asked) {
    // As net.Socket: `close` says whether there was an error.
    super({ allowHalfOpen: true, emitClose: false });
    this._connection = connection;
    this._asked = asked;
    /** The HttpResponse underneath, whose context is that of all that is told here. */
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
    /** Of a refusal. */
    this._content = undefined;
    this._number = -1;
    this._wantsRead = false;
    /** What is to be called when there is room for more, and when all has left. */
    this._flushed = undefined;
    this._finished = undefined;
    this._isReset = false;
    /** The response is somebody else's. */
    this._isLeft = false;
  }

  // ---- what is written ------------------------------------------------------------------------------------------------------

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
      // What has been written cannot be taken back, and nobody could say what it means.
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

  /** An interim response. 100 says nothing to a request without content. */
  _inform({ status, fields }) {
    const lines = [];
    for (let index = 0; index < fields.length; index += 2) lines.push(`${fields[index]}: ${fields[index + 1]}`);
    if (status !== 100 && !this._res._done) native.inform(this._res._slot, status, lines.join('\n'));
  }

  _grant(head) {
    const { _res: res } = this;
    this._answer = GRANTED;
    if (res._done) return;
    const isHttp1 = this._head.version === 1;
    const [chosen = this._asked] = head.all('upgrade');
    if (chosen.toLowerCase() !== this._asked) {
      throw malformed(`101 to ${shown(chosen)}, and the first protocol that the client names is ${this._asked}`);
    }
    // RFC 8441, section 5: over HTTP/2 and HTTP/3 there is no key, and nothing says that it was understood.
    const left = [...OF_THE_CONNECTION, 'content-length', isHttp1 ? '' : 'sec-websocket-accept'];
    this._writeFields(head, left);
    const number = native.tunnelOpen(res._slot);
    res._handOver();
    if (number === undefined) {
      // The client has left, which was about to be told.
      res.emitDestroy();
      process.nextTick(() => this.destroy(reset()));
      return;
    }
    this._number = number;
    tunnels.set(number, this);
    // Also where nobody listens yet, as sockets of node:http: so they hear of the end.
    if (this._wantsRead) native.tunnelRead(number);
    else this.read(0);
  }

  _refuse(head) {
    const { _res: res } = this;
    const content = head.content();
    this._answer = REFUSED;
    this._content = content;
    if (res._done) return;
    answers.status(res._slot, head.status);
    this._writeFields(head, [...OF_THE_CONNECTION, ...(this._head.version === 1 ? [] : ['upgrade'])]);
    if (content.isComplete) this._complete();
  }

  _writeFields({ fields }, left) {
    for (let index = 0; index < fields.length; index += 2) {
      if (!left.includes(fields[index])) writeField(this._res._slot, fields[index], fields[index + 1]);
    }
  }

  /** Bytes behind the head. */
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

  /** A refusal is the last response of its connection, as in node:http, which reads no more requests of a socket that it has given away. */
  _complete(chunk = '') {
    const { _res: res } = this;
    if (!res._done) res.end(chunk, true);
    // The client, who has all, is about to leave.
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
      else if (!this._content.isComplete) return this._cutShort(callback, 'its content is not complete');
    } else if (!this._reader.isEmpty) {
      return this._cutShort(callback, 'its head is not complete');
    }
    callback();
    // Behind 'finish'. Without an answer it is a connection that is closed without a word.
    process.nextTick(() => this.destroy());
  }

  _cutShort(callback, why) {
    this._isReset = true;
    callback(malformed(`the socket was ended, and ${why}`));
  }

  // ---- what is read ---------------------------------------------------------------------------------------------------------

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

  /** Both directions have ended. What nobody has begun to read will not be read; node:http gives the first of it as `head`. */
  _leaveUnread() {
    if (this.readableFlowing === null && this.listenerCount('readable') === 0) this.destroy();
  }

  // ---- the end --------------------------------------------------------------------------------------------------------------

  _destroy(error, callback) {
    clearTimeout(this._timer);
    const { _res: res, _number: number } = this;
    this._number = -1;
    if (number >= 0) {
      tunnels.delete(number);
      native.tunnelEnd(number, this._isReset);
      res.emitDestroy();
    } else if (!res._done && !this._isLeft) {
      // What is written before is sent, as the kernel would.
      if (this._answer === REFUSED && this._content.endsWithSocket && !this._isReset) res.end('', true);
      else res.close();
    }
    const [flushed, finished] = [this._flushed, this._finished];
    this._flushed = this._finished = undefined;
    const cut = flushed ?? finished;
    if (cut !== undefined) process.nextTick(cut, error ?? failure('ERR_STREAM_DESTROYED', 'The socket was destroyed'));
    callback(error);
    process.nextTick(() => this.emit('close', Boolean(error)));
  }

  /** The client has left before it had its answer, or in the middle of it. */
  _left() {
    if (this.destroyed) return;
    this.push(null);
    // Behind 'end', where somebody reads.
    setImmediate(() => this.destroy());
  }

  /** A listener of 'upgrade' has thrown. A request that is not answered yet gets the answer of those that fail. */
  _fail() {
    this._isLeft = this._answer !== GRANTED && !this._res._begun;
    this.destroy();
  }

  destroySoon() {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', this.destroy);
  }

  /** Resets the stream; over HTTP/1.1 it closes the connection, and what waits is lost. */
  resetAndDestroy() {
    this._isReset = true;
    return this.destroy();
  }

  /** What listeners throw is reported, as it is for requests, and ends this socket alone. A client that leaves is nobody's fault. */
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

  // ---- as net.Socket has it -------------------------------------------------------------------------------------------------

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

// Who asks and over what is the same for a request and for what it becomes.
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

/** What the native part tells. */
function told(number, what, hasEnded) {
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

module.exports = { UpgradeSocket, told };
