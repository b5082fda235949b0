'use strict';

// WebSocket connections. The native counterpart is crates/node/src/socket.rs.

const native = require('./native');
const contexts = require('./context');
const { recognized, recognizedText, textBuffer } = require('./text');
const { noFunction, nearest } = require('./errors');
const { Peer } = require('./peer');

const BINARY = 1;
const COMPRESS = 2;
/**
 * Outcomes of a message besides buffered (0) and sent (1). GONE: the connection has closed, and
 * JavaScript has not been notified.
 */
const DROPPED = 2;
const GONE = 3;

const HANDLERS = [
  'upgrade',
  'open',
  'message',
  'dropped',
  'drain',
  'ping',
  'pong',
  'close',
  'subscription',
];
const DEFAULTS = {
  compression: 0,
  maxPayloadLength: 16 * 1024,
  idleTimeout: 120,
  maxBackpressure: 64 * 1024,
  closeOnBackpressureLimit: false,
  sendPingsAutomatically: true,
  maxLifetime: 0,
};
/** Flag of the addon next to the compression bits: silent clients are sent pings. */
const PINGS = 1 << 12;
const MAX_LIFETIME_MINUTES = 239;

/** Open connections, by number. */
const sockets = new Map();

function closed(call) {
  return new Error(
    `${call} was called on a WebSocket that is closed: it can be used from its open handler to its close handler; ` +
      'drop your references to it in close',
  );
}

/** A WebSocket connection. */
class WebSocket extends Peer {
  constructor(number, route, remote) {
    super(remote);
    this._number = number;
    this._route = route;
    this._isOpen = true;
    /** The connection has ended, and its close handler is about to be called. */
    this._isEnding = false;
    /** Its subscriptions are being removed; its close handler is called next. */
    this._isLeaving = false;
    this._topics = new Set();
    this._context = new contexts.AsyncResource('PRONGHORNWEBSOCKET', contexts.OPTIONS);
  }

  _check(call) {
    if (!this._isOpen) throw closed(`ws.${call}()`);
    return this._number;
  }

  _checkStays(call) {
    if (this._isLeaving) throw closed(`ws.${call}()`);
    return this._check(call);
  }

  // ---- sending

  /** Sends a message. Returns 1: sent, 0: buffered, 2: dropped. */
  send(message, isBinary, compress) {
    const number = this._check('send');
    const known = recognized('ws.send()', message);
    const result = native.socketSend(number, known, flagsOf(isBinary, compress));
    return this._outcome(result, known, isBinary);
  }

  sendFirstFragment(message, isBinary, compress) {
    return this._sendFragment('sendFirstFragment', 0, message, isBinary, compress);
  }

  sendFragment(message, compress) {
    return this._sendFragment('sendFragment', 1, message, false, compress);
  }

  sendLastFragment(message, compress) {
    return this._sendFragment('sendLastFragment', 2, message, false, compress);
  }

  _sendFragment(call, place, message, isBinary, compress) {
    const number = this._check(call);
    const known = recognized(`ws.${call}()`, message);
    const result = native.socketSendFragment(number, known, flagsOf(isBinary, compress), place);
    return this._outcome(result, known, isBinary);
  }

  _outcome(result, message, isBinary) {
    // Also dropped if the back-pressure limit has just closed the connection.
    if (result === GONE && !this._isEnding) return DROPPED;
    return result === DROPPED || result === GONE ? this._drop(message, isBinary) : result;
  }

  _drop(message, isBinary) {
    const { behavior } = this._route;
    run(this, behavior.dropped, bufferOf(message), Boolean(isBinary));
    if (behavior.closeOnBackpressureLimit) this._closeSoon();
    return DROPPED;
  }

  ping(message = '') {
    const number = this._check('ping');
    const known = recognized('ws.ping()', message);
    return this._outcome(native.socketPing(number, known), known, false);
  }

  /** Returns the number of buffered bytes. The drain handler is called as they are sent. */
  getBufferedAmount() {
    return native.socketBuffered(this._check('getBufferedAmount'));
  }

  /** Calls the callback. */
  cork(callback) {
    if (typeof callback !== 'function') throw noFunction('ws.cork()', callback);
    this._check('cork');
    // All messages of a turn leave together anyway.
    callback(this);
    return this;
  }

  // ---- closing

  /** Closes with a code and a reason, after the messages sent so far. Calls the close handler. */
  end(code = 0, reason = '') {
    const number = this._checkStays('end');
    const known = recognizedText('ws.end()', reason);
    if (!Number.isInteger(code) || code < 0 || code > 65535) {
      throw new RangeError(`ws.end() takes a code such as 1000, not ${String(code)}`);
    }
    native.socketEnd(number, code === 1005 || code === 1006 ? 0 : code, known);
    this._closed(code, textBuffer(known));
  }

  /** Ends the connection at once. Calls the close handler. */
  close() {
    native.socketEnd(this._checkStays('close'), undefined);
    this._closed(1006, new ArrayBuffer(0));
  }

  /**
   * Ends the connection at once, and calls the close handler after the running handler. Messages
   * sent until then are dropped.
   */
  _closeSoon() {
    // A handler may have closed the connection.
    if (!this._isOpen || this._isEnding || this._isLeaving) return;
    this._isEnding = true;
    native.socketEnd(this._number, undefined);
    queueMicrotask(() => {
      if (this._isOpen) this._closed(1006, new ArrayBuffer(0));
    });
  }

  _closed(code, reason) {
    sockets.delete(this._number);
    const { app, behavior } = this._route;
    // The subscription handler may still read the connection and publish.
    this._isLeaving = true;
    for (const topic of this._topics) {
      const before = app._topics.count(topic);
      app._topics.remove(topic, this);
      run(this, behavior.subscription, textBuffer(topic), before - 1, before);
    }
    this._topics.clear();
    this._isOpen = false;
    run(this, behavior.close, code, reason);
    this._context.emitDestroy();
  }

  // ---- publish and subscribe

  subscribe(topic) {
    this._checkStays('subscribe');
    const known = recognizedText('ws.subscribe()', topic);
    const { app, behavior } = this._route;
    if (app._topics.add(known, this)) {
      this._topics.add(known);
      const count = app._topics.count(known);
      run(this, behavior.subscription, textBuffer(known), count, count - 1);
    }
    return true;
  }

  unsubscribe(topic) {
    this._check('unsubscribe');
    const known = recognizedText('ws.unsubscribe()', topic);
    const { app, behavior } = this._route;
    if (!app._topics.remove(known, this)) return false;
    this._topics.delete(known);
    const count = app._topics.count(known);
    run(this, behavior.subscription, textBuffer(known), count, count + 1);
    return true;
  }

  isSubscribed(topic) {
    this._check('isSubscribed');
    return this._topics.has(recognizedText('ws.isSubscribed()', topic));
  }

  getTopics() {
    this._check('getTopics');
    return [...this._topics];
  }

  iterateTopics(callback) {
    if (typeof callback !== 'function') throw noFunction('ws.iterateTopics()', callback);
    this.getTopics().forEach((topic) => callback(topic));
  }

  /** Sends to all other subscribers. Returns whether there are any. */
  publish(topic, message, isBinary, compress) {
    this._check('publish');
    return publish('ws.publish()', this._route.app, topic, message, isBinary, compress, this);
  }

  // ---- properties

  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddress() {
    return new ArrayBuffer(0);
  }

  getProxiedRemoteAddressAsText() {
    return new ArrayBuffer(0);
  }

  getProxiedRemotePort() {
    return 0;
  }

  /** Returns `http/1.1`, `h2` or `h3`. */
  getProtocol() {
    return this._remote.protocol;
  }
}

function flagsOf(isBinary, compress) {
  return (isBinary ? BINARY : 0) | (compress ? COMPRESS : 0);
}

/** Returns content in the form that handlers get. */
function bufferOf(known) {
  return typeof known === 'string' ? textBuffer(known) : known.slice().buffer;
}

/**
 * Calls a handler, if there is one, in the connection's asynchronous context. Exceptions are
 * reported, and the connection continues.
 */
function run(ws, handler, ...given) {
  if (handler !== undefined) ws._context.runInAsyncScope(call, undefined, ws, handler, given);
}

function call(ws, handler, given) {
  try {
    const result = handler(ws, ...given);
    if (result !== undefined && result !== null && typeof result.then === 'function') {
      result.then(undefined, (error) => report(ws, error));
    }
  } catch (error) {
    report(ws, error);
  }
}

function report(ws, error) {
  const { app, pattern } = ws._route;
  app._report(error, `ws ${pattern}`);
}

function publish(call, app, topic, message, isBinary, compress, except) {
  const known = recognized(call, message);
  const result = app._topics.publish(
    recognizedText(call, topic),
    known,
    flagsOf(isBinary, compress),
    except,
  );
  if (result === false) return false;
  for (const number of result.dropped) sockets.get(number)?._drop(known, isBinary);
  return true;
}

// ---- routes

/** The context that links an upgrade handler to `res.upgrade`. */
class UpgradeContext {
  constructor(route) {
    this._route = route;
  }
}

function checkNumber(name, value, least, most) {
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw new RangeError(
      `app.ws(): ${name} is a number from ${least} to ${most}, not ${String(value)}`,
    );
  }
}

/** Returns the checked behavior of a route, with defaults. */
function behaviorOf(given) {
  if (given === null || typeof given !== 'object') {
    throw new TypeError(
      `app.ws() takes an object of handlers and options, not ${given === null ? 'null' : typeof given}`,
    );
  }
  const known = [...HANDLERS, ...Object.keys(DEFAULTS)];
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    const like = nearest(name, known);
    throw new TypeError(
      `app.ws() has no handler or option ${JSON.stringify(name)}${like === undefined ? `: it has ${known.join(', ')}` : `; did you mean ${JSON.stringify(like)}?`}`,
    );
  }
  for (const name of HANDLERS) {
    if (given[name] !== undefined && typeof given[name] !== 'function')
      throw noFunction(`app.ws(): ${name}`, given[name]);
  }
  const behavior = { ...DEFAULTS };
  for (const [name, value] of Object.entries(given))
    if (value !== undefined) behavior[name] = value;
  checkNumber('maxPayloadLength', behavior.maxPayloadLength, 125, 2 ** 40);
  checkNumber('maxBackpressure', behavior.maxBackpressure, 0, 2 ** 40);
  checkNumber('idleTimeout', behavior.idleTimeout, 0, 86_400);
  checkNumber('maxLifetime', behavior.maxLifetime, 0, MAX_LIFETIME_MINUTES);
  checkNumber('compression', behavior.compression, 0, 0xfff);
  return behavior;
}

/** Returns the handler of upgrade requests of a route. */
function route(app, pattern, given) {
  const behavior = behaviorOf(given);
  const kind = native.socketKind(
    app._number,
    behavior.maxPayloadLength,
    // 0 means no limit, as in uWebSockets.js.
    behavior.maxBackpressure === 0 ? Number.MAX_SAFE_INTEGER : behavior.maxBackpressure,
    behavior.idleTimeout,
    behavior.maxLifetime,
    behavior.compression | (behavior.sendPingsAutomatically ? PINGS : 0),
  );
  const own = { app, pattern, behavior, kind };
  const handler = (res, req) => {
    if (refuse(res, req)) return undefined;
    const context = new UpgradeContext(own);
    if (behavior.upgrade !== undefined) return behavior.upgrade(res, req, context);
    res.upgrade(
      {},
      req.getHeader('sec-websocket-key'),
      req.getHeader('sec-websocket-protocol'),
      req.getHeader('sec-websocket-extensions'),
      context,
    );
    return undefined;
  };
  return handler;
}

/** Answers malformed upgrade requests (RFC 6455, section 4.2.1). Returns whether it did. */
function refuse(res, req) {
  if (req.getHeader('sec-websocket-version') !== '13') {
    res.writeStatus('426 Upgrade Required').writeHeader('sec-websocket-version', '13').end();
    return true;
  }
  if (
    req.getProtocol() === 'http/1.1' &&
    !/^[+/0-9A-Za-z]{22}==$/.test(req.getHeader('sec-websocket-key'))
  ) {
    res.writeStatus('400 Bad Request').end();
    return true;
  }
  return false;
}

/** See `HttpResponse.upgrade`. */
function upgrade(res, userData, key, protocol, extensions, context) {
  if (!(context instanceof UpgradeContext)) {
    throw new TypeError(
      'res.upgrade() takes the context of the upgrade handler as its last argument',
    );
  }
  const slot = res._check('upgrade');
  const remote = {
    address: native.remoteAddressAsText(slot),
    port: native.remotePort(slot),
    protocol: native.protocol(slot),
  };
  const texts = [key, protocol, extensions].map((text) =>
    recognizedText('res.upgrade()', text ?? ''),
  );
  // Copied before the upgrade is accepted, because a getter may throw.
  const data = { ...userData };
  const number = native.upgrade(slot, context._route.kind, ...texts);
  // Accepted or refused, the request is answered, and another one may have its slot.
  res._finish();
  if (typeof number === 'string') throw new Error(number);
  const ws = new WebSocket(number, context._route, remote);
  const own = { ...ws };
  // User data often comes from the client: it must not replace the connection's own properties.
  Object.assign(ws, data, own);
  sockets.set(number, ws);
  run(ws, context._route.behavior.open);
}

// ---- events of the addon

function message(number, what, data) {
  const ws = sockets.get(number);
  if (ws === undefined || ws._isEnding) return;
  const { behavior } = ws._route;
  if (what < 2) run(ws, behavior.message, data, what === 1);
  else run(ws, what === 2 ? behavior.ping : behavior.pong, data);
}

function drain(number) {
  const ws = sockets.get(number);
  if (ws !== undefined && !ws._isEnding) run(ws, ws._route.behavior.drain);
}

function close(number, code, reason) {
  const ws = sockets.get(number);
  if (ws !== undefined) ws._closed(ws._isEnding ? 1006 : code, reason);
}

/** Closes all connections of an application with 1001. */
function endAll(app) {
  for (const ws of [...sockets.values()]) {
    if (ws._route.app === app && ws._isOpen) ws.end(1001);
  }
}

/** All handlers and options of a route. */
const OPTIONS = [...HANDLERS, ...Object.keys(DEFAULTS)];

module.exports = { WebSocket, route, upgrade, publish, message, drain, close, endAll, OPTIONS };
