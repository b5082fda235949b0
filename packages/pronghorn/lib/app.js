'use strict';

const native = require('./native');
const cluster = require('./cluster');
const context = require('./context');
const { apps, released } = require('./dispatch');
const { routes, routeNumber, freeNumbers } = require('./exchanges');
const { noFunction, complain } = require('./errors');
const options = require('./options');
const { recognizedText, textBuffer } = require('./text');
const { Topics } = require('./topics');
const websocket = require('./websocket');
const webtransport = require('./webtransport');

const LISTEN_DEFAULT = 0;
const LISTEN_EXCLUSIVE_PORT = 1;
/** Of the doors for frameworks: not with other threads, and as with node:http with other processes of a cluster. */
const LISTEN_CLUSTER_ONLY = 2;
const CLEAR = 0;
const QUIC = 2;

/** What `listen` gives to its callback. */
class ListenSocket {
  constructor(number, app) {
    this._number = number;
    this._app = app;
    /** What is to be done when a cluster disconnects. */
    this._disconnect = () => app.close({ timeout: Infinity });
    /** When all of it has ended. */
    this._ended = new Promise((resolve) => (this._end = resolve));
  }

  /** As net.Server.address() has it; `null` when it has ended. */
  _address() {
    const text = this._number >= 0 ? native.address(this._number) : undefined;
    if (text === undefined) return null;
    const colon = text.lastIndexOf(':');
    const address = text.slice(0, colon).replace(/^\[|\]$/g, '');
    return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', port: Number(text.slice(colon + 1)) };
  }
}

/** A connection that `filter` tells of. */
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

/** Frees what the native part keeps of applications that nobody can reach any more. */
const collected = new FinalizationRegistry(({ app, routeNumbers }) => {
  native.freeApp(app);
  freeNumbers.push(...routeNumbers);
});

/** Text, also where it is given as bytes. */
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
    // Before there is anything that would have to be taken away again.
    if (!this._isSecure) options.warnWithoutTls(kind, given);
    else if (!options.setCertificate(kind, undefined, undefined, given).isSet) options.needsCertificate(kind, given);
    this._hasQuic = transports >= QUIC;
    this._hasSessions = false;
    this._number = native.createApp(transports, native.environment, options.settings(given));
    /** Those with handlers in JavaScript, and their numbers. */
    this._routes = [];
    this._routeNumbers = [];
    collected.register(this, { app: this._number, routeNumbers: this._routeNumbers });
    /** Whether a client may have shown a certificate. */
    this._asksClients = false;
    /** What was said of clients' certificates for each server name, and under `undefined` for all others. */
    this._clients = new Map();
    if (this._isSecure) this._setCertificate(kind, undefined, given);
  }

  /** Returns whether there is one. Who changes a certificate and says nothing of clients' means those who were asked before. */
  _setCertificate(call, name, given) {
    const clients = options.mergedClients(this._clients.get(name), given);
    const { isSet, asksClients } = options.setCertificate(call, this._number, name, { ...given, ...clients });
    if (isSet) this._clients.set(name, clients);
    this._asksClients ||= asksClients;
    return isSet;
  }

  // ---- routes ---------------------------------------------------------------------------------------------------------------

  _route(call, method, given, handler) {
    const pattern = patternOf(call, given);
    const path = this._path(call, pattern);
    native.route(this._number, this._domain, method, path, this._handler(call, pattern, path, handler));
    return this;
  }

  _path(call, pattern) {
    if (typeof pattern !== 'string' || !(pattern.startsWith('/') || pattern === '*')) {
      throw new TypeError(
        `app.${call}() takes a pattern that begins with a slash, such as '/users/:id' or '/*', not ${JSON.stringify(pattern)}.`,
      );
    }
    // The rest of the path may have a name, which nobody asks for.
    const path = pattern === '*' ? '/*' : pattern.replace(/\/\*[^/]*$/, '/*');
    if (/\/\*[^/]*\//.test(path)) {
      throw new TypeError(
        `app.${call}() takes '*' as the last segment alone, where it stands for the rest of the path, not as in ${JSON.stringify(pattern)}: a segment in the middle is a parameter, such as ':any'.`,
      );
    }
    return path;
  }

  _handler(call, pattern, path, handler) {
    if (handler === null) return undefined;
    if (handler instanceof ArrayBuffer || ArrayBuffer.isView(handler)) {
      return native.declare(this._number, handler instanceof ArrayBuffer ? new Uint8Array(handler) : handler, path);
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
      // What was answered last, and what the native part keeps to answer again.
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

  // ---- WebSocket ------------------------------------------------------------------------------------------------------------

  /** Connections over all protocols. These routes go before the others; `null` removes one. */
  ws(given, behavior) {
    const pattern = patternOf('ws', given);
    const path = this._path('ws', pattern);
    const handler = behavior === null ? null : websocket.route(this, pattern, behavior);
    native.socketRoute(this._number, this._domain, path, this._handler('ws', pattern, path, handler));
    return this;
  }

  /** WebTransport sessions over HTTP/3, for what listens from now on; `null` removes a route. */
  wt(given, behavior) {
    const pattern = patternOf('wt', given);
    const path = this._path('wt', pattern);
    if (!this._hasQuic) throw new TypeError(`app.wt() needs HTTP/3: use H3App or Server, not ${this._kind}.`);
    if (this._sockets.size > 0 && !this._hasSessions) {
      throw new Error(
        'app.wt() was called first after app.listen(): clients are told of it as they connect, so call it before.',
      );
    }
    this._hasSessions = true;
    const handler = behavior === null ? null : webtransport.route(this, pattern, behavior);
    native.sessionRoute(this._number, this._domain, path, this._handler('wt', pattern, path, handler));
    return this;
  }

  /** To all that have subscribed. Returns whether there are any. */
  publish(topic, message, isBinary, compress) {
    return websocket.publish('app.publish()', this, topic, message, isBinary, compress);
  }

  numSubscribers(topic) {
    return this._topics.count(recognizedText('app.numSubscribers()', topic));
  }

  // ---- server names ---------------------------------------------------------------------------------------------------------

  /** The certificate for a host name, which may begin with `*.`. Given again, it takes the place of the former. */
  addServerName(hostname, given = {}) {
    const call = 'app.addServerName()';
    options.check(call, given, options.TLS);
    if (!this._isSecure) {
      options.refuseClients(call, given);
    } else if (!this._setCertificate(call, String(hostname).toLowerCase(), given)) {
      throw new TypeError(`${call} needs a certificate: give key_file_name and cert_file_name, or key and cert.`);
    }
    return this;
  }

  removeServerName(hostname) {
    native.removeServerName(this._number, String(hostname));
    this._clients.delete(String(hostname).toLowerCase());
    return this;
  }

  /** `callback(hostname)` may add the name before it returns. */
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

  /** The routes that are added next are for this host name alone; '' or nothing: for all. */
  domain(hostname = '') {
    this._domain = String(hostname).toLowerCase();
    return this;
  }

  /** Another certificate, for handshakes from now on; connections that are open keep theirs. */
  setCertificate(given) {
    const call = 'app.setCertificate()';
    options.check(call, given, options.TLS);
    if (!this._isSecure) throw new TypeError('an App has no TLS: use SSLApp, H3App or Server.');
    if (!this._setCertificate(call, undefined, given)) {
      throw new TypeError(`${call} needs key_file_name and cert_file_name, or key and cert.`);
    }
    return this;
  }

  // ---- listening ------------------------------------------------------------------------------------------------------------

  listen(...given) {
    const isHost =
      typeof given[0] === 'string' && !/^\d+$/.test(given[0]) && ['number', 'string'].includes(typeof given[1]);
    const host = isHost ? given.shift() : undefined;
    const [wanted, ...rest] = given;
    // As the environment has it.
    const port = typeof wanted === 'string' && /^\d+$/.test(wanted) ? Number(wanted) : wanted;
    const callback = rest.pop();
    const [flags = 0] = rest;
    if (!Number.isInteger(port) || port < 0 || port > 65535) {
      throw new TypeError(`app.listen() takes a port from 0 to 65535, not ${JSON.stringify(port)}.`);
    }
    if (callback !== undefined && typeof callback !== 'function') throw noFunction('app.listen()', callback);
    if (![LISTEN_DEFAULT, LISTEN_EXCLUSIVE_PORT, LISTEN_CLUSTER_ONLY].includes(flags)) {
      throw new TypeError(
        `app.listen() takes LIBUS_LISTEN_DEFAULT or LIBUS_LISTEN_EXCLUSIVE_PORT as its options, not ${JSON.stringify(flags)}.`,
      );
    }
    const inCluster = flags !== LISTEN_EXCLUSIVE_PORT && cluster.shares();
    let socket;
    // The first requests may come before `native.listen` returns.
    this._setReachable(true);
    try {
      const number = native.listen(this._number, host || undefined, port, flags === LISTEN_DEFAULT, inCluster);
      socket = new ListenSocket(number, this);
    } catch (error) {
      if (this._sockets.size === 0) this._setReachable(false);
      const failure = explain(error, port);
      if (callback === undefined) throw failure;
      // Who does not look at the error shall see it all the same.
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
    if (inCluster) cluster.announce(socket, host || undefined, socket._address(), this._transports === QUIC);
    callback?.(socket);
    return this;
  }

  /** Whether events find it, which keeps it from being collected. */
  _setReachable(isReachable) {
    apps[this._number] = isReachable ? this : undefined;
    for (const route of this._routes) routes[route.number] = isReachable ? route : undefined;
  }

  /** Closes connections and goes on listening: all of them, or those on which no request is open. */
  _closeConnections(all) {
    for (const socket of this._sockets) native.closeConnections(socket._number, all);
  }

  /**
   * Ends all: connections that are open are closed at once. With `{ timeout }`, in milliseconds, clients are told, what runs is finished
   * within that time, and the returned promise resolves when all has ended.
   */
  close(given) {
    const sockets = [...this._sockets];
    const grace = given?.timeout;
    if (given !== undefined && (typeof grace !== 'number' || !(grace >= 0))) {
      throw new TypeError('app.close() takes { timeout }, a number of milliseconds, or nothing.');
    }
    const ended = sockets.map((socket) => socket._ended);
    if (grace > 0) websocket.endAll(this);
    for (const socket of sockets) native.end(socket._number, grace ?? 0);
    return given === undefined ? this : Promise.all(ended).then(() => undefined);
  }

  // ---- what goes on ---------------------------------------------------------------------------------------------------------

  /** `callback(connection, count)`: 1 when a client connects, -1 when the connection has ended. */
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

  /** Counters of all that listens, added up. */
  getStatistics() {
    const sum = {};
    for (const socket of this._sockets) {
      for (const [name, value] of Object.entries(native.stats(socket._number) ?? {}))
        sum[name] = (sum[name] ?? 0) + value;
    }
    return sum;
  }

  /** What a handler has thrown. The process goes on. */
  _report(error, where) {
    if (this._onError !== undefined) {
      try {
        this._onError(error, where);
        return;
      } catch (second) {
        complain('pronghorn: onError itself has failed:', second);
      }
    }
    // Requests are told by their method; connections and sessions go on.
    const answer = /^[A-Z]+ /.test(where) ? 'the client gets 500 or an aborted response, and ' : '';
    complain(
      `pronghorn: ${where} failed; ${answer}the process goes on. Catch this in the handler, or give the app an onError option:\n`,
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
    failure.message += `. Another server has port ${port}: stop it, or listen on another port (0 for any)`;
  } else if (/permission denied/i.test(error.message)) {
    failure.code = 'EACCES';
    failure.message +=
      '. Ports below 1024 are for root: take a higher one, or give node the capability cap_net_bind_service';
  } else if (/cannot assign/i.test(error.message)) {
    failure.code = 'EADDRNOTAVAIL';
    failure.message += '. The address is none of this machine';
  }
  return failure;
}

/** Takes no new connections; those that are open go on. */
function us_listen_socket_close(socket) {
  if (!(socket instanceof ListenSocket)) {
    throw new TypeError('us_listen_socket_close() takes what listen() gave to its callback.');
  }
  if (socket._number >= 0) native.end(socket._number);
}

/** The port that is bound, or -1. */
function us_socket_local_port(socket) {
  return socket instanceof ListenSocket && socket._number >= 0 ? native.port(socket._number) : -1;
}

// Functions, since some call them with `new`.

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
