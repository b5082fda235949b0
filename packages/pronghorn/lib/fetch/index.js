'use strict';

const { EventEmitter } = require('node:events');
const { makeApp, isSecure, listen, addressOf, setReferenced } = require('../serving');
const { noFunction, warnOnce } = require('../errors');
const { fetchHandler, overrideGlobals, Response } = require('./handler');

/** Helpers of frameworks, such as injectWebSocket of @hono/node-ws, wait for what node:http emits. */
function warnOfUpgrade(event) {
  if (event !== 'upgrade') return;
  warnOnce(
    "The server of serve() does not emit 'upgrade': add WebSocket routes to its app (server.app.ws()), or use pronghorn/http, which emits it.",
  );
}

/** What `serve` returns. */
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

  /** Where it listens, as a URL. */
  get url() {
    const address = this.address();
    if (address === null) return undefined;
    const host = { '::': 'localhost', '0.0.0.0': 'localhost' }[address.address] ?? address.address;
    return `http${this._secure ? 's' : ''}://${host.includes(':') ? `[${host}]` : host}:${address.port}/`;
  }

  /** Takes no new requests, lets those that run finish (within `timeout` milliseconds), and resolves when all has ended. */
  close(given, callback) {
    const done = typeof given === 'function' ? given : callback;
    const timeout = (typeof given === 'object' ? given?.timeout : undefined) ?? Infinity;
    this._closed ??= this.app.close({ timeout }).then(() => this.emit('close'));
    // Less patience than before.
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

/** Options of @hono/node-server that mean nothing here, and what to do instead. */
const REFUSED = {
  createServer: 'leave it out: with key and cert the server speaks HTTP/1.1, HTTP/2 and HTTP/3, without them HTTP/1.1',
  websocket: 'add WebSocket routes to the `app` of the server that serve() returns',
};

/**
 * Serves what `fetch(request, info)` answers, over all protocols if there is a certificate. What is no option of its own goes to `Server`
 * or `App`.
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
  // What is left of content that nobody reads is no burden here.
  delete more.autoCleanupIncoming;
  if (typeof fetch !== 'function') throw noFunction('The option fetch of serve()', fetch);
  if (onListening !== undefined && typeof onListening !== 'function') throw noFunction('serve()', onListening);
  for (const [name, instead] of Object.entries(REFUSED)) {
    if (name in more) throw new TypeError(`serve() has no option ${name}: ${instead}.`);
  }
  if (overrideGlobalObjects) overrideGlobals();
  const settings = { ...more, ...serverOptions };
  const app = makeApp(settings);
  app.any('/*', fetchHandler(fetch, { onError }));
  const server = new FetchServer(app, isSecure(settings));
  const disconnect = () => server.close();
  server._listening = listen(app, { port: Number(port), host: hostname, reusePort, exclusive, disconnect });
  process.nextTick(() => {
    const address = server.address();
    if (address === null) return;
    server.emit('listening');
    onListening?.(address);
  });
  return server;
}

module.exports = { serve, FetchServer, fetchHandler, overrideGlobals, Response };
