'use strict';

const diagnostics = require('node:diagnostics_channel');
const { EventEmitter } = require('node:events');
const http = require('node:http');
const options = require('../options');
const { Head } = require('../head');
const { makeApp, isSecure, listen, addressOf, setReferenced } = require('../serving');
const { noFunction, warnOnce } = require('../errors');
const { Socket } = require('./socket');
const { handleUpgrade } = require('./upgrade');
const { makeRequest, reset } = require('./incoming');
const { makeResponse, failure } = require('./outgoing');

/** Limits for settings of node:http: name, unit, minimum and maximum. */
const LIMITS = {
  headersTimeout: ['head_timeout', 'ms', 100, 3_600_000],
  keepAliveTimeout: ['idle_timeout', 'ms', 100, 3_600_000],
  maxHeaderSize: ['field_section_bytes', '', 1024, 16 << 20],
  maxHeadersCount: ['field_lines', '', 1, 10_000],
};
/** Options of node:http, node:https and node:http2 without effect; see docs/node/frameworks.md. */
const WITHOUT_EFFECT = [
  'requestTimeout',
  'connectionsCheckingInterval',
  'highWaterMark',
  'insecureHTTPParser',
  'noDelay',
  'keepAlive',
  'keepAliveInitialDelay',
  'keepAliveTimeoutBuffer',
  'uniqueHeaders',
  'rejectNonStandardBodyWrites',
  'requireHostHeader',
  'allowHTTP1',
  'ALPNProtocols',
  'timeout',
];

function warnOfConnect(event) {
  if (event !== 'connect') return;
  warnOnce(
    "pronghorn/http does not emit 'connect': CONNECT requests are answered with 404, and never reach a listener",
  );
}

/**
 * Returns whether clients are asked for a certificate; `undefined` if the options do not say.
 * `ca_file_name`, which Node.js does not have, implies it.
 */
const asksClients = ({ request_cert: own, requestCert, ca_file_name: file }) =>
  own ?? requestCert ?? (file === undefined ? undefined : true);

/**
 * Returns the prototype of a Node.js server with these settings. node:https is loaded only for TLS.
 */
const baseOf = (settings) => (isSecure(settings) ? require('node:https') : http).Server.prototype;

/** Diagnostics channel of tools that instrument node:http. */
const requestStart = diagnostics.channel('http.server.request.start');

/** A server with the interface of node:http, node:https and node:http2, over all protocols. */
class Server extends EventEmitter {
  constructor(given, listener) {
    super();
    if (typeof given === 'function') [given, listener] = [undefined, given];
    if (given !== undefined && given !== null && typeof given !== 'object')
      throw noFunction('createServer()', given);
    const { IncomingMessage, ServerResponse, joinDuplicateHeaders, ...more } = given ?? {};
    this._settings = {};
    this._base = undefined;
    this._limits = {};
    for (const [name, value] of Object.entries(more)) {
      if (name in LIMITS) this._limits[name] = value;
      else if (!WITHOUT_EFFECT.includes(name) && value !== undefined) this._settings[name] = value;
    }
    // As in node:https, `ca` alone does not make the server ask for a certificate.
    this._settings = { ...this._settings, request_cert: asksClients(this._settings) ?? false };
    // Errors are thrown here, not in `listen`.
    const kind = 'createServer()';
    options.check(kind, this._settings);
    options.setCertificate(kind, undefined, undefined, this._settings);
    this._IncomingMessage = IncomingMessage ?? http.IncomingMessage;
    this._ServerResponse = ServerResponse ?? http.ServerResponse;
    this._joinsDuplicates = joinDuplicateHeaders === true;
    this._app = undefined;
    this._listening = undefined;
    this._isReferenced = true;
    this._closing = undefined;
    this.timeout = 0;
    this.requestTimeout = 300_000;
    this.maxRequestsPerSocket = 0;
    for (const name of Object.keys(LIMITS)) this[name] = this._limits[name];
    this.on('newListener', warnOfConnect);
    if (listener !== undefined) {
      if (typeof listener !== 'function') throw noFunction('createServer()', listener);
      this.on('request', listener);
    }
  }

  /**
   * Returns the app underneath, for routes besides the framework's, such as WebSocket. It is
   * created on first use.
   */
  get app() {
    return (this._app ??= this._makeApp());
  }

  _makeApp() {
    const limits = { ...this._settings.limits };
    for (const [name, [limit, unit, least, most]] of Object.entries(LIMITS)) {
      const value = this[name];
      // 0 and null mean no limit.
      if (value === undefined || limit in limits) continue;
      const number = Number(value);
      limits[limit] =
        `${number > 0 ? Math.min(Math.max(Math.ceil(number), least), most) : most}${unit}`;
    }
    const settings = { ...this._settings, ...(Object.keys(limits).length === 0 ? {} : { limits }) };
    return makeApp(settings).any('/*', (res, req) => this._handle(res, req));
  }

  _handle(res, req) {
    const head = new Head(req._slot);
    if (head.asksForUpgrade && this.listenerCount('upgrade') > 0)
      return handleUpgrade(this, res, head);
    const socket = new Socket(head, res, this);
    const request = makeRequest(this._IncomingMessage, socket, res._hasContent);
    request.joinDuplicateHeaders = this._joinsDuplicates;
    const response = makeResponse(this._ServerResponse, request, socket);
    if (this.timeout > 0) socket.setTimeout(this.timeout);
    if (requestStart.hasSubscribers)
      requestStart.publish({ request, response, socket, server: this });
    const expects =
      socket._head.first('expect') !== undefined && this.listenerCount('checkContinue') > 0;
    this.emit(expects ? 'checkContinue' : 'request', request, response);
    if (!res._done) res.onAborted(() => socket._left(reset('aborted')));
    return undefined;
  }

  // ---- listening

  listen(...given) {
    // It may listen again while connections of an earlier `listen` are still closing.
    if (this.listening) {
      throw failure(
        Error,
        'ERR_SERVER_ALREADY_LISTEN',
        'Listen method has been called more than once without closing.',
      );
    }
    const callback = typeof given.at(-1) === 'function' ? given.pop() : undefined;
    const [first, host] = given;
    const isObject = first !== null && typeof first === 'object';
    const wanted = isObject
      ? first
      : { port: first, host: typeof host === 'string' ? host : undefined };
    if (
      wanted.path !== undefined ||
      (typeof first === 'string' && !/^\d+$/.test(first)) ||
      wanted.fd !== undefined
    ) {
      throw failure(
        Error,
        'ERR_INVALID_ARG_VALUE',
        'server.listen() takes a port: QUIC has no Unix sockets',
      );
    }
    const port = Number(wanted.port ?? 0);
    if (!Number.isInteger(port) || port < 0 || port > 65535) {
      throw failure(
        RangeError,
        'ERR_SOCKET_BAD_PORT',
        `options.port should be >= 0 and < 65536. Received ${wanted.port}.`,
      );
    }
    if (callback !== undefined) this.once('listening', callback);
    if (wanted.signal?.aborted) {
      process.nextTick(() => this.emit('close'));
      return this;
    }
    try {
      this._listening = listen(this.app, {
        port,
        host: wanted.host,
        reusePort: wanted.reusePort === true,
        exclusive: wanted.exclusive === true,
        disconnect: () => this.close(),
      });
    } catch (error) {
      Object.assign(error, { syscall: 'listen', address: wanted.host ?? '::', port });
      process.nextTick(() => this.emit('error', error));
      return this;
    }
    this._closing = undefined;
    if (!this._isReferenced) this.unref();
    wanted.signal?.addEventListener('abort', () => this.close(), { once: true });
    process.nextTick(() => {
      if (this.listening) this.emit('listening');
    });
    return this;
  }

  get listening() {
    return this._closing === undefined && this.address() !== null;
  }

  address() {
    return addressOf(this._listening);
  }

  /** Stops accepting connections, closes idle ones, and lets open requests finish. */
  close(callback) {
    if (this._closing !== undefined || this.address() === null) {
      const error = failure(Error, 'ERR_SERVER_NOT_RUNNING', 'Server is not running.');
      if (callback !== undefined) process.nextTick(callback, error);
      return this;
    }
    if (callback !== undefined) this.once('close', () => callback());
    const closing = this.app.close({ timeout: Infinity }).then(() => {
      process.nextTick(() => {
        // Not if it listens again: 'close' then follows that listener, as in node:http.
        if (this._closing === closing) this.emit('close');
      });
    });
    this._closing = closing;
    // For frameworks that replace this method.
    this.closeIdleConnections();
    return this;
  }

  /** Closes all connections at once. Later connections are served, unless `close` was called. */
  closeAllConnections() {
    if (this._closing !== undefined) this._app.close();
    else this._app?._closeConnections(true);
  }

  /** Closes connections that have had a request and have none now. */
  closeIdleConnections() {
    // `close` ends them gracefully, because a request may be in flight.
    if (this._closing === undefined) this._app?._closeConnections(false);
  }

  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')]() {
    await new Promise((resolve) => this.close(resolve));
  }

  getConnections(callback) {
    const { tcp_open: tcp = 0, quic_open: quic = 0 } = this._app?.getStatistics() ?? {};
    process.nextTick(callback, null, tcp + quic);
    return this;
  }

  ref() {
    this._isReferenced = true;
    setReferenced(this._listening, true);
    return this;
  }

  unref() {
    this._isReferenced = false;
    setReferenced(this._listening, false);
    return this;
  }

  /** Sets the milliseconds without activity after which a request emits 'timeout'. */
  setTimeout(milliseconds, callback) {
    this.timeout = milliseconds;
    if (callback !== undefined) this.on('timeout', callback);
    return this;
  }

  /** Replaces the certificate for new handshakes. */
  setSecureContext(given) {
    this._needsTls('setSecureContext');
    this.app.setCertificate({ ...given, request_cert: asksClients(given ?? {}) });
  }

  /**
   * Sets the certificate of a host name, which may begin with `*.`. Client certificate options that
   * are omitted are those of the server, as in node:https.
   */
  addContext(hostname, given) {
    this._needsTls('addContext');
    const clients = options.mergedClients(this._settings, {
      ...given,
      request_cert: asksClients(given ?? {}),
    });
    this.app.addServerName(hostname, { ...given, ...clients });
  }

  /**
   * Calls `emit` of the Node.js prototype, which instrumentation tools replace: node:https with
   * TLS.
   */
  emit(...given) {
    return (this._base ??= baseOf(this._settings)).emit.apply(this, given);
  }

  _needsTls(call) {
    if (!isSecure(this._settings))
      throw new TypeError(`server.${call}() needs a server with key and cert`);
  }
}

// Makes `instanceof http.Server` true. Only `emit` of its methods is used; the others need sockets.
Object.setPrototypeOf(Server.prototype, http.Server.prototype);

/** Creates a server: HTTP/1.1, or with key and cert HTTP/1.1, HTTP/2 and HTTP/3 on one port. */
const createServer = (given, listener) => new Server(given, listener);

/** All accepted options. */
const OPTIONS = [
  ...options.KNOWN,
  ...Object.keys(LIMITS),
  ...WITHOUT_EFFECT,
  'IncomingMessage',
  'ServerResponse',
  'joinDuplicateHeaders',
];

module.exports = { Server, createServer, OPTIONS };
