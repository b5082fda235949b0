'use strict';

const native = require('./native');
const cluster = require('./cluster');
const context = require('./context');
const { apps, released } = require('./dispatch');
const { routes, routeNumber, freeNumbers } = require('./exchanges');
const { noFunction, logError } = require('./errors');
const options = require('./options');
const { recognizedText, textBuffer } = require('./text');
const { Topics } = require('./topics');
const websocket = require('./websocket');
const webtransport = require('./webtransport');

const LISTEN_DEFAULT = 0;
const LISTEN_EXCLUSIVE_PORT = 1;
/**
 * For framework servers: the port is shared with processes of the cluster, as with node:http, not
 * with threads.
 */
const LISTEN_CLUSTER_ONLY = 2;
const CLEAR = 0;
const QUIC = 2;

/** A listening socket, the argument of `listen`'s callback. */
class ListenSocket {
  constructor(number, app) {
    this._number = number;
    this._app = app;
    /** Called when the cluster disconnects. */
    this._disconnect = () => app.close({ timeout: Infinity });
    /** Resolves when the listener and its connections have ended. */
    this._ended = new Promise((resolve) => (this._end = resolve));
  }

  /** Returns the address in the form of net.Server.address(); `null` if the listener has ended. */
  _address() {
    const text = this._number >= 0 ? native.address(this._number) : undefined;
    if (text === undefined) return null;
    const colon = text.lastIndexOf(':');
    const address = text.slice(0, colon).replace(/^\[|\]$/g, '');
    return {
      address,
      family: address.includes(':') ? 'IPv6' : 'IPv4',
      port: Number(text.slice(colon + 1)),
    };
  }
}

/** A connection, as passed to the callback of `filter`. */
class Connection {
  constructor(remote) {
    const [address, port] = remote.split(' ');
    this._address = address;
    this._port = Number(port);
  }

  getRemoteAddressAsText() {
    return textBuffer(this._address);
  }

  getRemotePort() {
    return this._port;
  }
}

/** Frees the native memory of applications that were garbage-collected. */
const collected = new FinalizationRegistry(({ app, routeNumbers }) => {
  native.freeApp(app);
  freeNumbers.push(...routeNumbers);
});

/** Returns a pattern as a string, decoding bytes. */
function patternOf(call, given) {
  const isBytes = ArrayBuffer.isView(given) || given instanceof ArrayBuffer;
  return isBytes ? recognizedText(`app.${call}()`, given) : given;
}

class TemplatedApp {
  constructor(kind, transports, given = {}) {
    options.check(kind, given);
    this._kind = kind;
    this._isSecure = transports !== CLEAR;
    this._onError = given.onError;
    this._domain = '';
    this._filters = [];
    this._missing = undefined;
    this._sockets = new Set();
    this._topics = new Topics();
    this._transports = transports;
    // Checked before any native memory is allocated.
    if (!this._isSecure) options.warnWithoutTls(kind, given);
    else if (!options.setCertificate(kind, undefined, undefined, given).isSet)
      options.needsCertificate(kind, given);
    this._hasQuic = transports >= QUIC;
    this._hasSessions = false;
    this._number = native.createApp(transports, native.environment, options.settings(given));
    /** Routes with JavaScript handlers, and their numbers. */
    this._routes = [];
    this._routeNumbers = [];
    collected.register(this, { app: this._number, routeNumbers: this._routeNumbers });
    /** Whether any client may have sent a certificate. */
    this._asksClients = false;
    /**
     * Options about client certificates for each server name; `undefined` is the key of all others.
     */
    this._clients = new Map();
    if (this._isSecure) this._setCertificate(kind, undefined, given);
  }

  /**
   * Sets a certificate. Returns whether the options have one. Omitted options about client
   * certificates keep their earlier values.
   */
  _setCertificate(call, name, given) {
    const clients = options.mergedClients(this._clients.get(name), given);
    const { isSet, asksClients } = options.setCertificate(call, this._number, name, {
      ...given,
      ...clients,
    });
    if (isSet) this._clients.set(name, clients);
    this._asksClients ||= asksClients;
    return isSet;
  }

  // ---- routes

  _route(call, method, given, handler) {
    const pattern = patternOf(call, given);
    const path = this._path(call, pattern);
    native.route(
      this._number,
      this._domain,
      method,
      path,
      this._handler(call, pattern, path, handler),
    );
    return this;
  }

  _path(call, pattern) {
    if (typeof pattern !== 'string' || !(pattern.startsWith('/') || pattern === '*')) {
      throw new TypeError(
        `app.${call}() takes a pattern that begins with a slash, such as '/users/:id' or '/*', not ${JSON.stringify(pattern)}`,
      );
    }
    // The wildcard may have a name, which is ignored.
    const path = pattern === '*' ? '/*' : pattern.replace(/\/\*[^/]*$/, '/*');
    if (/\/\*[^/]*\//.test(path)) {
      throw new TypeError(
        `app.${call}() takes '*' as the last segment alone, for the rest of the path, not as in ${JSON.stringify(pattern)}: use a parameter such as ':any' for a segment in the middle`,
      );
    }
    return path;
  }

  _handler(call, pattern, path, handler) {
    if (handler === null) return undefined;
    if (handler instanceof ArrayBuffer || ArrayBuffer.isView(handler)) {
      return native.declare(
        this._number,
        handler instanceof ArrayBuffer ? new Uint8Array(handler) : handler,
        path,
      );
    }
    if (typeof handler !== 'function') throw noFunction(`app.${call}('${pattern}')`, handler);
    const parameters = path.split('/').filter((segment) => segment.startsWith(':'));
    const route = {
      app: this,
      method: call.toUpperCase(),
      pattern,
      handler,
      isUpgrade: call === 'ws' || call === 'wt',
      number: routeNumber(),
      parameters: parameters.map((segment) => segment.slice(1)),
      // The last body, and the body that the addon keeps for repetition.
      last: undefined,
      kept: undefined,
    };
    this._routes.push(route);
    this._routeNumbers.push(route.number);
    if (this._sockets.size > 0) routes[route.number] = route;
    return route.number;
  }

  get(pattern, handler) {
    return this._route('get', 'GET', pattern, handler);
  }

  post(pattern, handler) {
    return this._route('post', 'POST', pattern, handler);
  }

  put(pattern, handler) {
    return this._route('put', 'PUT', pattern, handler);
  }

  patch(pattern, handler) {
    return this._route('patch', 'PATCH', pattern, handler);
  }

  del(pattern, handler) {
    return this._route('del', 'DELETE', pattern, handler);
  }

  options(pattern, handler) {
    return this._route('options', 'OPTIONS', pattern, handler);
  }

  head(pattern, handler) {
    return this._route('head', 'HEAD', pattern, handler);
  }

  connect(pattern, handler) {
    return this._route('connect', 'CONNECT', pattern, handler);
  }

  trace(pattern, handler) {
    return this._route('trace', 'TRACE', pattern, handler);
  }

  any(pattern, handler) {
    return this._route('any', undefined, pattern, handler);
  }

  // ---- WebSocket

  /** Adds a WebSocket route for all protocols. It comes before other routes; `null` removes it. */
  ws(given, behavior) {
    const pattern = patternOf('ws', given);
    const path = this._path('ws', pattern);
    const handler = behavior === null ? null : websocket.route(this, pattern, behavior);
    native.socketRoute(
      this._number,
      this._domain,
      path,
      this._handler('ws', pattern, path, handler),
    );
    return this;
  }

  /** Adds a WebTransport route for listeners that start later; `null` removes it. */
  wt(given, behavior) {
    const pattern = patternOf('wt', given);
    const path = this._path('wt', pattern);
    if (!this._hasQuic)
      throw new TypeError(`app.wt() needs HTTP/3: use H3App or Server, not ${this._kind}`);
    if (this._sockets.size > 0 && !this._hasSessions) {
      throw new Error(
        'app.wt() was called first after app.listen(): call it before, because clients learn about WebTransport as they connect',
      );
    }
    this._hasSessions = true;
    const handler = behavior === null ? null : webtransport.route(this, pattern, behavior);
    native.sessionRoute(
      this._number,
      this._domain,
      path,
      this._handler('wt', pattern, path, handler),
    );
    return this;
  }

  /** Sends a message to all subscribers. Returns whether there are any. */
  publish(topic, message, isBinary, compress) {
    return websocket.publish('app.publish()', this, topic, message, isBinary, compress);
  }

  numSubscribers(topic) {
    return this._topics.count(recognizedText('app.numSubscribers()', topic));
  }

  // ---- server names

  /** Sets the certificate of a host name, which may begin with `*.`; replaces an earlier one. */
  addServerName(hostname, given = {}) {
    const call = 'app.addServerName()';
    options.check(call, given, options.TLS);
    if (!this._isSecure) {
      options.refuseClients(call, given);
    } else if (!this._setCertificate(call, String(hostname).toLowerCase(), given)) {
      throw new TypeError(
        `${call} needs a certificate: give key_file_name and cert_file_name, or key and cert`,
      );
    }
    return this;
  }

  removeServerName(hostname) {
    native.removeServerName(this._number, String(hostname));
    this._clients.delete(String(hostname).toLowerCase());
    return this;
  }

  /** Sets the callback for unknown server names. It may add the name before it returns. */
  missingServerName(callback) {
    if (typeof callback !== 'function') throw noFunction('app.missingServerName()', callback);
    this._missing = callback;
    if (this._isSecure) native.askForServerNames(this._number);
    return this;
  }

  _onMissingServerName(name) {
    try {
      context.once('PRONGHORNSERVERNAME', this._missing, name);
    } catch (error) {
      this._report(error, `app.missingServerName() for ${name}`);
    }
  }

  /** Limits routes that are added later to a host name; '' or nothing: to no host name. */
  domain(hostname = '') {
    this._domain = String(hostname).toLowerCase();
    return this;
  }

  /** Replaces the certificate for new handshakes. Open connections keep theirs. */
  setCertificate(given) {
    const call = 'app.setCertificate()';
    options.check(call, given, options.TLS);
    if (!this._isSecure) throw new TypeError('an App has no TLS: use SSLApp, H3App or Server');
    if (!this._setCertificate(call, undefined, given)) {
      throw new TypeError(`${call} needs key_file_name and cert_file_name, or key and cert`);
    }
    return this;
  }

  // ---- listening

  listen(...given) {
    const isHost =
      typeof given[0] === 'string' &&
      !/^\d+$/.test(given[0]) &&
      ['number', 'string'].includes(typeof given[1]);
    const host = isHost ? given.shift() : undefined;
    const [wanted, ...rest] = given;
    // Environment variables are strings.
    const port = typeof wanted === 'string' && /^\d+$/.test(wanted) ? Number(wanted) : wanted;
    const callback = rest.pop();
    const [flags = 0] = rest;
    if (!Number.isInteger(port) || port < 0 || port > 65535) {
      throw new TypeError(`app.listen() takes a port from 0 to 65535, not ${JSON.stringify(port)}`);
    }
    if (callback !== undefined && typeof callback !== 'function')
      throw noFunction('app.listen()', callback);
    if (![LISTEN_DEFAULT, LISTEN_EXCLUSIVE_PORT, LISTEN_CLUSTER_ONLY].includes(flags)) {
      throw new TypeError(
        `app.listen() takes LIBUS_LISTEN_DEFAULT or LIBUS_LISTEN_EXCLUSIVE_PORT as its options, not ${JSON.stringify(flags)}`,
      );
    }
    const inCluster = flags !== LISTEN_EXCLUSIVE_PORT && cluster.shares();
    let socket;
    // The first requests may arrive before `native.listen` returns.
    this._setReachable(true);
    try {
      const number = native.listen(
        this._number,
        host || undefined,
        port,
        flags === LISTEN_DEFAULT,
        inCluster,
      );
      socket = new ListenSocket(number, this);
    } catch (error) {
      if (this._sockets.size === 0) this._setReachable(false);
      const failure = explain(error, port);
      if (callback === undefined) throw failure;
      // A callback that ignores the error still leaves a warning.
      if (callback.length < 2) process.emitWarning(failure.message, 'PronghornWarning');
      callback(false, failure);
      return this;
    }
    this._sockets.add(socket);
    released.set(socket._number, () => {
      this._sockets.delete(socket);
      if (this._sockets.size === 0) this._setReachable(false);
      cluster.forget(socket);
      socket._number = -1;
      socket._end();
    });
    if (inCluster)
      cluster.announce(socket, host || undefined, socket._address(), this._transports === QUIC);
    callback?.(socket);
    return this;
  }

  /** Sets whether events reach this app, which keeps it from being garbage-collected. */
  _setReachable(isReachable) {
    apps[this._number] = isReachable ? this : undefined;
    for (const route of this._routes) routes[route.number] = isReachable ? route : undefined;
  }

  /**
   * Closes connections and continues listening: all connections, or those without an open request.
   */
  _closeConnections(all) {
    for (const socket of this._sockets) native.closeConnections(socket._number, all);
  }

  /**
   * Closes all listeners and connections at once. With `{ timeout }`, in milliseconds, it notifies
   * clients and lets open requests finish within that time; the returned promise resolves when all
   * connections have ended.
   */
  close(given) {
    const sockets = [...this._sockets];
    const grace = given?.timeout;
    if (given !== undefined && (typeof grace !== 'number' || !(grace >= 0))) {
      throw new TypeError('app.close() takes { timeout }, a number of milliseconds, or nothing');
    }
    const ended = sockets.map((socket) => socket._ended);
    if (grace > 0) websocket.endAll(this);
    for (const socket of sockets) native.end(socket._number, grace ?? 0);
    return given === undefined ? this : Promise.all(ended).then(() => undefined);
  }

  // ---- observation

  /** Adds a callback for connections: `count` is 1 when one is opened, -1 when one has ended. */
  filter(callback) {
    if (typeof callback !== 'function') throw noFunction('app.filter()', callback);
    this._filters.push(callback);
    native.filterConnections(this._number);
    return this;
  }

  _onConnection(count, remote) {
    const connection = new Connection(remote);
    for (const callback of this._filters) {
      try {
        context.once('PRONGHORNCONNECTION', callback, connection, count);
      } catch (error) {
        this._report(error, 'app.filter()');
      }
    }
  }

  /** Returns the counters of all listeners, added up. */
  getStatistics() {
    const sum = {};
    for (const socket of this._sockets) {
      for (const [name, value] of Object.entries(native.stats(socket._number) ?? {}))
        sum[name] = (sum[name] ?? 0) + value;
    }
    return sum;
  }

  /** Reports an exception of a handler. The process continues. */
  _report(error, where) {
    if (this._onError !== undefined) {
      try {
        this._onError(error, where);
        return;
      } catch (second) {
        logError('pronghorn: onError failed:', second);
      }
    }
    // Places of requests begin with their method; connections and sessions continue.
    const answer = /^[A-Z]+ /.test(where) ? 'the client gets 500 or an aborted response; ' : '';
    logError(
      `pronghorn: ${where} failed: ${answer}the process continues; catch the error in the handler, or set the option onError\n`,
      error,
    );
  }
}

function explain(error, port) {
  const failure = new Error(error.message, { cause: error });
  if (/^cannot share /.test(error.message)) {
    failure.code = 'ERR_PRONGHORN_CLUSTER';
  } else if (/in use/i.test(error.message)) {
    failure.code = 'EADDRINUSE';
    failure.message += `: another server has port ${port}; stop it, or listen on another port (0 for any)`;
  } else if (/permission denied/i.test(error.message)) {
    failure.code = 'EACCES';
    failure.message +=
      ': ports below 1024 need root; use a higher one, or give node the capability cap_net_bind_service';
  } else if (/cannot assign/i.test(error.message)) {
    failure.code = 'EADDRNOTAVAIL';
    failure.message += ': this machine does not have the address';
  }
  return failure;
}

/** Stops accepting connections. Open connections continue. */
function us_listen_socket_close(socket) {
  if (!(socket instanceof ListenSocket)) {
    throw new TypeError(
      'us_listen_socket_close() takes the socket that listen() passed to its callback',
    );
  }
  if (socket._number >= 0) native.end(socket._number);
}

/** Returns the port of a listener, or -1 if it has ended. */
function us_socket_local_port(socket) {
  return socket instanceof ListenSocket && socket._number >= 0 ? native.port(socket._number) : -1;
}

// Plain functions, because some programs call them with `new`.

function App(given) {
  return new TemplatedApp('App', 0, given);
}

function SSLApp(given) {
  return new TemplatedApp('SSLApp', 1, given);
}

function H3App(given) {
  return new TemplatedApp('H3App', 2, given);
}

function Server(given) {
  return new TemplatedApp('Server', 3, given);
}

module.exports = {
  TemplatedApp,
  us_listen_socket_close,
  us_socket_local_port,
  LISTEN_EXCLUSIVE_PORT,
  LISTEN_CLUSTER_ONLY,
  App,
  SSLApp,
  H3App,
  Server,
};
