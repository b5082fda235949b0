'use strict';

// WebTransport sessions, with streams of node:stream. The native counterpart is
// crates/node/src/session.rs.

const { Duplex, Readable, Writable } = require('node:stream');
const native = require('./native');
const contexts = require('./context');
const { recognized, recognizedText, textBuffer } = require('./text');
const { noFunction, nearest } = require('./errors');
const { Peer } = require('./peer');

const HANDLERS = ['upgrade', 'open', 'stream', 'datagram', 'draining', 'close'];
const MAX_CODE = 2 ** 32 - 1;

/** Open sessions and streams, by number. */
const sessions = new Map();
const streams = new Map();

function checkCode(call, code) {
  if (!Number.isInteger(code) || code < 0 || code > MAX_CODE) {
    throw new RangeError(`${call} takes a code from 0 to ${MAX_CODE}, not ${String(code)}`);
  }
}

/** A WebTransport session. */
class WebTransportSession extends Peer {
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
        `session.${call}() was called on a WebTransport session that is closed: it can be used from its open handler to its close handler; ` +
          'drop your references to it in close',
      );
    }
    return this._number;
  }

  /** Opens a stream in both directions. Writes wait until the client allows another stream. */
  createBidirectionalStream() {
    return made(
      this,
      native.sessionOpen(this._check('createBidirectionalStream'), false),
      true,
      true,
    );
  }

  /** Opens a stream to the client. */
  createUnidirectionalStream() {
    return made(
      this,
      native.sessionOpen(this._check('createUnidirectionalStream'), true),
      false,
      true,
    );
  }

  /** Sends a datagram. Returns false if it is too large, or the client accepts none. */
  sendDatagram(data) {
    const known = recognized('session.sendDatagram()', data);
    return native.sessionSendDatagram(this._check('sendDatagram'), known);
  }

  /** Returns the current maximum size of a datagram in bytes; 0 if the client accepts none. */
  getMaxDatagramSize() {
    return native.sessionMaxDatagram(this._check('getMaxDatagramSize'));
  }

  /** Asks the client to end the session, which stays open until one side closes it. */
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

  /** Reports an exception of a handler or of a stream's listener. */
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

// ---- streams

/**
 * Extends `Base`: exceptions of listeners are reported like those of handlers, and the session
 * continues.
 */
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

/**
 * Extends `Base`: exceptions in callbacks of `write` and `end` are reported, too. They would stop
 * node:stream otherwise.
 */
const withCallbacks = (Base) =>
  class extends withReports(Base) {
    write(chunk, encoding, callback) {
      if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
      return super.write(chunk, encoding, callback && this._guarded(callback));
    }

    end(...given) {
      return super.end(
        ...given.map((value) => (typeof value === 'function' ? this._guarded(value) : value)),
      );
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
 * A stream in both directions. In node:stream an error of one side ends the other side as well;
 * here the client may stop reading and continue to send.
 */
class DuplexStream extends withCallbacks(Duplex) {
  _stop(error) {
    if (this.readableEnded || this._isEcho) {
      this.destroy(error);
      return;
    }
    this._stopped = error;
    this.writable = false;
    // 'error' is emitted when everything has been read, so that no data is lost.
    this.prependOnceListener('end', () => this.destroy(error));
    written(this);
    this.emit('stopped', error);
  }

  /** Notes a stream that is piped into itself: it ends when nothing more can be written. */
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
      // Written before the client stopped reading. The callback of `write` gets the error.
      process.nextTick(callback);
      return;
    }
    this._written = callback;
    native.streamWrite(
      this._number,
      typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk,
    );
  },
  final(callback) {
    // Never finished: the stream is destroyed when reading has ended.
    if (this._stopped !== undefined) return;
    native.streamFinish(this._number);
    callback();
  },
};

/** Resets a stream with the code in `stream.resetCode`, or 0. */
function destroy(error, callback) {
  native.streamEnd(this._number, this.resetCode ?? 0);
  streams.delete(this._number);
  this._session._streams.delete(this);
  callback(error);
}

function made(session, number, isReadable, isWritable) {
  const Kind =
    isReadable && isWritable ? DuplexStream : isReadable ? ReadableStream : WritableStream;
  const stream = new Kind({
    ...(isReadable ? reading : {}),
    ...(isWritable ? writing : {}),
    destroy,
  });
  stream._number = number;
  stream._session = session;
  stream._written = undefined;
  /** The error after which nothing more can be written, although reading continues. */
  stream._stopped = undefined;
  stream._isEcho = false;
  // A client may reset its stream at any time: without a listener of its own, the program
  // continues.
  stream.on('error', () => {});
  streams.set(number, stream);
  session._streams.add(stream);
  return stream;
}

/** Calls back for the last write: there is capacity for more. */
function written(stream) {
  const callback = stream._written;
  stream._written = undefined;
  callback?.();
}

/** Returns the error for a direction that the client ended. */
function failure(what, code) {
  const error = new Error(`the client ${what} the stream with code ${code}`);
  return Object.assign(error, { code: 'ERR_WEBTRANSPORT_STREAM', streamErrorCode: code });
}

// ---- routes

/** The context that links an upgrade handler to `res.upgrade`. */
class SessionContext {
  constructor(route) {
    this._route = route;
  }
}

/** Returns the handler of session requests of a route. */
function route(app, pattern, behavior) {
  if (behavior === null || typeof behavior !== 'object') {
    throw new TypeError(`app.wt() takes an object of handlers, not ${typeof behavior}`);
  }
  for (const [name, handler] of Object.entries(behavior)) {
    if (!HANDLERS.includes(name)) {
      const like = nearest(name, HANDLERS);
      throw new TypeError(
        `app.wt() has no handler ${JSON.stringify(name)}${like === undefined ? `: it has ${HANDLERS.join(', ')}` : `; did you mean ${JSON.stringify(like)}?`}`,
      );
    }
    if (handler !== undefined && typeof handler !== 'function')
      throw noFunction(`app.wt(): ${name}`, handler);
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
  // Copied before the session is accepted, because a getter may throw.
  const data = { ...userData };
  const number = native.acceptSession(slot);
  // Accepted or refused, the request is answered, and another one may have its slot.
  res._finish();
  if (typeof number === 'string') throw new Error(number);
  const session = new WebTransportSession(number, context._route, remote);
  const own = { ...session };
  // User data often comes from the client: it must not replace the session's own properties.
  Object.assign(session, data, own);
  sessions.set(number, session);
  run(session, context._route.behavior.open);
}

/**
 * Calls a handler, if there is one, in the session's asynchronous context. Exceptions are reported,
 * and the session continues.
 */
function run(session, handler, ...given) {
  if (handler !== undefined)
    session._context.runInAsyncScope(call, undefined, session, handler, given);
}

function call(session, handler, given) {
  const report = (error) => session._report(error);
  try {
    const result = handler(session, ...given);
    if (result !== undefined && result !== null && typeof result.then === 'function')
      result.then(undefined, report);
  } catch (error) {
    report(error);
  }
}

// ---- events of the addon

function onSessionEvent(number, what, code, data) {
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

function onStreamEvent(number, what, code, data) {
  const stream = streams.get(number);
  if (stream !== undefined)
    stream._session._context.runInAsyncScope(change, undefined, stream, what, code, data);
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

module.exports = {
  WebTransportSession,
  SessionContext,
  route,
  upgrade,
  onSessionEvent,
  onStreamEvent,
  OPTIONS: HANDLERS,
};
