'use strict';

// WebTransport sessions, and their streams as those of node:stream. The other side is crates/node/src/session.rs.

const { Duplex, Readable, Writable } = require('node:stream');
const native = require('./native');
const contexts = require('./context');
const { recognized, recognizedText, textBuffer } = require('./text');
const { noFunction, nearest } = require('./errors');
const { Remote } = require('./remote');

const HANDLERS = ['upgrade', 'open', 'stream', 'datagram', 'draining', 'close'];
const MAX_CODE = 2 ** 32 - 1;

/** Sessions and streams that are open, by number. */
const sessions = new Map();
const streams = new Map();

function checkCode(call, code) {
  if (!Number.isInteger(code) || code < 0 || code > MAX_CODE) {
    throw new RangeError(`${call} takes a code from 0 to ${MAX_CODE}, not ${String(code)}.`);
  }
}

/** One session. */
class WebTransportSession extends Remote {
  constructor(number, route, remote) {
    super(remote);
    this._number = number;
    this._route = route;
    this._isOpen = true;
    this._streams = new Set();
    this._context = new contexts.AsyncResource('PRONGHORNWEBTRANSPORT', contexts.OPTIONS);
  }

  _check(call) {
    if (!this._isOpen) {
      throw new Error(
        `session.${call}() was called on a WebTransport session that is closed. It can be used from its open handler to its close handler: ` +
          'forget it in close, wherever you keep it.',
      );
    }
    return this._number;
  }

  /** A stream in both directions. What is written waits until the client allows another stream. */
  createBidirectionalStream() {
    return made(this, native.sessionOpen(this._check('createBidirectionalStream'), false), true, true);
  }

  /** A stream to the client. */
  createUnidirectionalStream() {
    return made(this, native.sessionOpen(this._check('createUnidirectionalStream'), true), false, true);
  }

  /** Sends what arrives once or not at all. False if it is too large, or the client takes none. */
  sendDatagram(data) {
    const known = recognized('session.sendDatagram()', data);
    return native.sessionSendDatagram(this._check('sendDatagram'), known);
  }

  /** Bytes that a datagram can carry now; 0 if the client takes none. */
  getMaxDatagramSize() {
    return native.sessionMaxDatagram(this._check('getMaxDatagramSize'));
  }

  /** Tells the client that the session should come to its end; it goes on until one side closes it. */
  drain() {
    native.sessionDrain(this._check('drain'));
  }

  /** Closes the session and its streams. Calls the close handler. */
  close(code = 0, reason = '') {
    const number = this._check('close');
    checkCode('session.close()', code);
    const known = recognizedText('session.close()', reason);
    native.sessionClose(number, code, known);
    this._closed(code, textBuffer(known));
  }

  /** What its handlers and the listeners of its streams throw. */
  _report(error) {
    this._route.app._report(error, `wt ${this._route.pattern}`);
  }

  _closed(code, reason) {
    this._isOpen = false;
    sessions.delete(this._number);
    for (const stream of [...this._streams]) stream.destroy();
    run(this, this._route.behavior.close, code, reason);
    this._context.emitDestroy();
  }
}

// ---- streams ----------------------------------------------------------------------------------------------------------------

/** As `Base`; what its listeners throw is reported as what handlers throw, and the session goes on. */
const withReports = (Base) =>
  class extends Base {
    emit(...given) {
      try {
        return super.emit(...given);
      } catch (error) {
        this._session._report(error);
        return true;
      }
    }
  };

/** As `Base`; callbacks of `write` and `end` are such listeners. One that throws would keep node:stream from what comes after it. */
const withCallbacks = (Base) =>
  class extends withReports(Base) {
    write(chunk, encoding, callback) {
      if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
      return super.write(chunk, encoding, callback && this._guarded(callback));
    }

    end(...given) {
      return super.end(...given.map((value) => (typeof value === 'function' ? this._guarded(value) : value)));
    }

    _guarded(callback) {
      return (error) => {
        try {
          callback(error ?? this._stopped);
        } catch (thrown) {
          this._session._report(thrown);
        }
      };
    }
  };

const ReadableStream = withReports(Readable);
const WritableStream = withCallbacks(Writable);

/**
 * A stream in both directions. In node:stream an error of one side ends the other one, too; here the client may want no more of what is
 * sent, and go on sending.
 */
class DuplexStream extends withCallbacks(Duplex) {
  _stop(error) {
    if (this.readableEnded || this._isEcho) {
      this.destroy(error);
      return;
    }
    this._stopped = error;
    this.writable = false;
    // Listeners of 'error' hear of it when nothing of what they read can be lost by that.
    this.prependOnceListener('end', () => this.destroy(error));
    written(this);
    this.emit('stopped', error);
  }

  /** What is read to be written back is of no use when nothing can be written. */
  pipe(target, options) {
    this._isEcho ||= target === this;
    return super.pipe(target, options);
  }

  write(chunk, encoding, callback) {
    if (this._stopped === undefined) return super.write(chunk, encoding, callback);
    this._refuse([encoding, callback]);
    return false;
  }

  end(...given) {
    if (this._stopped === undefined) return super.end(...given);
    this._refuse(given);
    return this;
  }

  _refuse(given) {
    const callback = given.find((value) => typeof value === 'function');
    if (callback !== undefined) process.nextTick(this._guarded(callback));
  }
}

const reading = {
  read() {
    native.streamRead(this._number);
  },
};

const writing = {
  write(chunk, encoding, callback) {
    if (this._stopped !== undefined) {
      // It was written before the client wanted no more. Whoever wrote it is told so in `write`.
      process.nextTick(callback);
      return;
    }
    this._written = callback;
    native.streamWrite(this._number, typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk);
  },
  final(callback) {
    // It is never finished, and destroyed when what is read has ended.
    if (this._stopped !== undefined) return;
    native.streamFinish(this._number);
    callback();
  },
};

/** The code that a stream is reset with: that of `stream.resetCode`, if it is set. */
function destroy(error, callback) {
  native.streamEnd(this._number, this.resetCode ?? 0);
  streams.delete(this._number);
  this._session._streams.delete(this);
  callback(error);
}

function made(session, number, isReadable, isWritable) {
  const Kind = isReadable && isWritable ? DuplexStream : isReadable ? ReadableStream : WritableStream;
  const stream = new Kind({ ...(isReadable ? reading : {}), ...(isWritable ? writing : {}), destroy });
  stream._number = number;
  stream._session = session;
  stream._written = undefined;
  /** Why nothing more can be written, although reading goes on. */
  stream._stopped = undefined;
  stream._isEcho = false;
  // What a client does to its stream is no error of the program: who wants to know listens, and the others go on.
  stream.on('error', () => {});
  streams.set(number, stream);
  session._streams.add(stream);
  return stream;
}

/** What was written last has left, as far as that there is room for more. */
function written(stream) {
  const callback = stream._written;
  stream._written = undefined;
  callback?.();
}

/** The client has given up a direction of a stream. */
function failure(what, code) {
  const error = new Error(`the client has ${what} the stream with code ${code}`);
  return Object.assign(error, { code: 'ERR_WEBTRANSPORT_STREAM', streamErrorCode: code });
}

// ---- routes -----------------------------------------------------------------------------------------------------------------

/** What handlers and `res.upgrade` pass on. */
class SessionContext {
  constructor(route) {
    this._route = route;
  }
}

/** The handler of requests for a route of sessions, which `res.upgrade` grants. */
function route(app, pattern, behavior) {
  if (behavior === null || typeof behavior !== 'object') {
    throw new TypeError(`app.wt() takes an object of handlers, not ${typeof behavior}.`);
  }
  for (const [name, handler] of Object.entries(behavior)) {
    if (!HANDLERS.includes(name)) {
      const like = nearest(name, HANDLERS);
      throw new TypeError(
        `app.wt() has no handler ${JSON.stringify(name)}${like === undefined ? `: it has ${HANDLERS.join(', ')}.` : `; did you mean ${JSON.stringify(like)}?`}`,
      );
    }
    if (handler !== undefined && typeof handler !== 'function') throw noFunction(`app.wt(): ${name}`, handler);
  }
  const own = { app, pattern, behavior };
  return (res, req) => {
    const context = new SessionContext(own);
    if (behavior.upgrade !== undefined) return behavior.upgrade(res, req, context);
    return res.upgrade({}, context);
  };
}

/** See `HttpResponse.upgrade`. */
function upgrade(res, userData, context) {
  const slot = res._check('upgrade');
  const remote = { address: native.remoteAddressAsText(slot), port: native.remotePort(slot) };
  // Read before anything is granted: a getter may throw.
  const data = { ...userData };
  const number = native.acceptSession(slot);
  // Granted or refused, the request is answered: another one may have its slot.
  res._finish();
  if (typeof number === 'string') throw new Error(number);
  const session = new WebTransportSession(number, context._route, remote);
  const own = { ...session };
  // User data often comes from the client: it does not take the place of what the session is told by.
  Object.assign(session, data, own);
  sessions.set(number, session);
  run(session, context._route.behavior.open);
}

/** Calls a handler in the session's asynchronous context, if there is one. What it throws is reported, and the session goes on. */
function run(session, handler, ...given) {
  if (handler !== undefined) session._context.runInAsyncScope(call, undefined, session, handler, given);
}

function call(session, handler, given) {
  const report = (error) => session._report(error);
  try {
    const result = handler(session, ...given);
    if (result !== undefined && result !== null && typeof result.then === 'function') result.then(undefined, report);
  } catch (error) {
    report(error);
  }
}

// ---- what the native part tells -----------------------------------------------------------------------------------------------

function told(number, what, code, data) {
  const session = sessions.get(number);
  if (session === undefined) {
    if (what === 1 || what === 2) native.streamEnd(code >>> 0, 0);
    return;
  }
  const { behavior } = session._route;
  switch (what) {
    case 0:
      run(session, behavior.datagram, data);
      break;
    case 1:
    case 2: {
      const stream = made(session, code, true, what === 1);
      if (behavior.stream === undefined) stream.destroy();
      else run(session, behavior.stream, stream);
      break;
    }
    case 3:
      run(session, behavior.draining);
      break;
    case 4:
      session._closed(code >>> 0, data);
      break;
  }
}

function heard(number, what, code, data) {
  const stream = streams.get(number);
  if (stream !== undefined) stream._session._context.runInAsyncScope(change, undefined, stream, what, code, data);
}

function change(stream, what, code, data) {
  switch (what) {
    case 0:
      stream.push(new Uint8Array(data));
      break;
    case 1:
      stream.push(null);
      break;
    case 2:
      stream.destroy(failure('reset', code >>> 0));
      break;
    case 3:
      written(stream);
      break;
    case 4:
      if (stream instanceof DuplexStream) stream._stop(failure('stopped', code >>> 0));
      else stream.destroy(failure('stopped', code >>> 0));
      break;
    case 5:
      stream.destroy();
      break;
  }
}

module.exports = { WebTransportSession, SessionContext, route, upgrade, told, heard, OPTIONS: HANDLERS };
