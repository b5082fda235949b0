'use strict';

// WebTransport sessions, and their streams as those of node:stream. The other side is crates/node/src/session.rs.

const { Duplex, Readable, Writable } = require('node:stream');
const native = require('./native');
const { recognized, recognizedText } = require('./text');
const { noFunction, nearest } = require('./errors');
const { Remote } = require('./remote');
const { textBuffer } = require('./response');

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

  _closed(code, reason) {
    this._isOpen = false;
    sessions.delete(this._number);
    for (const stream of [...this._streams]) stream.destroy();
    run(this, this._route.behavior.close, code, reason);
  }
}

// ---- streams ----------------------------------------------------------------------------------------------------------------

const reading = {
  read() {
    native.streamRead(this._number);
  },
};

const writing = {
  write(chunk, encoding, callback) {
    this._written = callback;
    native.streamWrite(this._number, typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk);
  },
  final(callback) {
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
  const Kind = isReadable && isWritable ? Duplex : isReadable ? Readable : Writable;
  const stream = new Kind({ ...(isReadable ? reading : {}), ...(isWritable ? writing : {}), destroy });
  stream._number = number;
  stream._session = session;
  stream._written = undefined;
  // What a client does to its stream is no error of the program: who wants to know listens, and the others go on.
  stream.on('error', () => {});
  streams.set(number, stream);
  session._streams.add(stream);
  return stream;
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

/** Calls a handler, if there is one. What it throws is reported, and the session goes on. */
function run(session, handler, ...given) {
  if (handler === undefined) return;
  const report = (error) => session._route.app._report(error, `wt ${session._route.pattern}`);
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
  if (stream === undefined) return;
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
    case 3: {
      const written = stream._written;
      stream._written = undefined;
      written?.();
      break;
    }
    case 4:
      stream.destroy(failure('stopped', code >>> 0));
      break;
  }
}

module.exports = { WebTransportSession, SessionContext, route, upgrade, told, heard };
