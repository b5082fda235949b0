'use strict';

const { EventEmitter } = require('node:events');
const { makeApp, isSecure, listen, addressOf, setReferenced } = require('../serving');
const { noFunction, warnOnce } = require('../errors');
const { fetchHandler, overrideGlobals, Response } = require('./handler');

/** Warns helpers, such as injectWebSocket of @hono/node-ws, that wait for an event of node:http. */
function warnOfUpgrade(event) {
  if (event !== 'upgrade') return;
  warnOnce(
    "the server of serve() does not emit 'upgrade': add WebSocket routes to its app (server.app.ws()), or use pronghorn/http, which emits it",
  );
}

/** The server that `serve` returns. */
class FetchServer extends EventEmitter {
  constructor(app, secure) {
    super();
    this.app = app;
    this._secure = secure;
    this._listening = undefined;
    this._closed = undefined;
    this.on('newListener', warnOfUpgrade);
  }

  get listening() {
    return this.address() !== null;
  }

  address() {
    return addressOf(this._listening);
  }

  /** Returns the URL of the server; `undefined` if it is not listening. */
  get url() {
    const address = this.address();
    if (address === null) return undefined;
    const host = { '::': 'localhost', '0.0.0.0': 'localhost' }[address.address] ?? address.address;
    return `http${this._secure ? 's' : ''}://${host.includes(':') ? `[${host}]` : host}:${address.port}/`;
  }

  /**
   * Stops accepting requests, lets open ones finish (within `timeout` milliseconds), and resolves
   * when all connections have ended.
   */
  close(given, callback) {
    const done = typeof given === 'function' ? given : callback;
    const timeout = (typeof given === 'object' ? given?.timeout : undefined) ?? Infinity;
    this._closed ??= this.app.close({ timeout }).then(() => this.emit('close'));
    // A later call may shorten the time.
    if (timeout !== Infinity) this.app.close({ timeout });
    if (done !== undefined) this._closed.then(() => done());
    return this._closed.then(() => undefined);
  }

  ref() {
    setReferenced(this._listening, true);
    return this;
  }

  unref() {
    setReferenced(this._listening, false);
    return this;
  }
}

/** Options of @hono/node-server that are refused, with the alternative. */
const REFUSED = {
  createServer:
    'leave it out: with key and cert the server speaks HTTP/1.1, HTTP/2 and HTTP/3, without them HTTP/1.1',
  websocket: 'add WebSocket routes to the `app` of the server that serve() returns',
};

/**
 * Starts a server for a fetch handler, over all protocols if there is a certificate. Options that
 * are not its own go to `Server` or `App`.
 */
function serve(given, onListening) {
  const {
    fetch,
    port = 3000,
    hostname,
    reusePort = false,
    exclusive = false,
    overrideGlobalObjects = true,
    serverOptions,
    onError,
    ...more
  } = given;
  // Unread request bodies need no clean-up here.
  delete more.autoCleanupIncoming;
  if (typeof fetch !== 'function') throw noFunction('The option fetch of serve()', fetch);
  if (onListening !== undefined && typeof onListening !== 'function')
    throw noFunction('serve()', onListening);
  for (const [name, instead] of Object.entries(REFUSED)) {
    if (name in more) throw new TypeError(`serve() has no option ${name}: ${instead}`);
  }
  if (overrideGlobalObjects) overrideGlobals();
  const settings = { ...more, ...serverOptions };
  const app = makeApp(settings);
  app.any('/*', fetchHandler(fetch, { onError }));
  const server = new FetchServer(app, isSecure(settings));
  const disconnect = () => server.close();
  server._listening = listen(app, {
    port: Number(port),
    host: hostname,
    reusePort,
    exclusive,
    disconnect,
  });
  process.nextTick(() => {
    const address = server.address();
    if (address === null) return;
    server.emit('listening');
    onListening?.(address);
  });
  return server;
}

module.exports = { serve, FetchServer, fetchHandler, overrideGlobals, Response };
