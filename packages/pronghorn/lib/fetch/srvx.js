'use strict';

// The server interface of srvx, which H3 and Nitro use.

const fs = require('node:fs');
const { check } = require('../options');
const { makeApp, isSecure, listen } = require('../serving');
const { FetchServer } = require('./index');
const { handlerOf, Response } = require('./handler');
const { LazyRequest, state } = require('./request');

/** A request with the properties that srvx adds. */
class ServerRequest extends LazyRequest {
  constructor(exchange, waitUntil) {
    super(exchange);
    this.waitUntil = waitUntil;
    this.context = undefined;
  }

  get ip() {
    return this[state].head.address;
  }

  get runtime() {
    const { head, client } = this[state];
    const { certificate: clientCertificate, authorized } = client;
    return {
      name: 'pronghorn',
      pronghorn: {
        protocol: head.protocol,
        earlyData: head.earlyData,
        clientCertificate,
        authorized,
      },
    };
  }
}

/** Options of srvx that are refused, with the alternative. */
const REFUSED = {
  trustProxy: 'forwarded headers are not trusted; read request.headers in a middleware',
  node: 'there is no node:http server underneath; set `pronghorn`, the options of Server',
};

const TLS = ['key', 'cert', 'passphrase', 'ca', 'requestCert', 'rejectUnauthorized'];

function readPem(value) {
  if (Array.isArray(value)) return value.map(readPem);
  return typeof value !== 'string' || value.startsWith('-----BEGIN ')
    ? value
    : fs.readFileSync(value, 'utf8');
}

/** Returns the options of `Server` or `App`. */
function settingsOf(options) {
  const { tls = {}, protocol, maxRequestBodySize } = options;
  const settings = { ...options.pronghorn };
  check('the option tls of serve()', tls, TLS);
  const { key, cert, passphrase, ca, ...clients } = tls;
  const own = protocol === 'http' ? {} : { key: readPem(key), cert: readPem(cert), passphrase };
  // Also passed in clear text, where they are an error.
  for (const [name, value] of Object.entries({ ...own, ca: readPem(ca), ...clients })) {
    if (value !== undefined) settings[name] = value;
  }
  if (protocol === 'https' && !isSecure(settings))
    throw new TypeError('the protocol https needs tls with key and cert');
  if (maxRequestBodySize !== undefined) {
    settings.limits = { request_body_bytes: `${maxRequestBodySize}B`, ...settings.limits };
  }
  return settings;
}

class SrvxServer {
  constructor(given) {
    for (const [name, why] of Object.entries(REFUSED)) {
      if (given[name]) throw new TypeError(`serve() has no option ${name}: ${why}`);
    }
    this.runtime = 'pronghorn';
    this.options = { ...given, middleware: [...(given.middleware ?? [])] };
    for (const plugin of given.plugins ?? []) plugin(this);
    this.fetch = compose(this.options);
    this._pending = new Set();
    this.waitUntil = (promise) => this._waitFor(promise);
    const settings = settingsOf(this.options);
    const app = makeApp(settings);
    app.any(
      '/*',
      handlerOf(this.fetch, {
        makeRequest: (exchange) => new ServerRequest(exchange, this.waitUntil),
      }),
    );
    this.pronghorn = new FetchServer(app, isSecure(settings));
    this._ready = undefined;
    if (!given.manual) this.serve().catch(() => {});
    if (this._handlesSignals()) this._closeOnSignals();
  }

  /** Starts listening. A server that is not `manual` does so by itself. */
  serve() {
    this._ready ??= (async () => {
      const {
        port = process.env.PORT ?? 3000,
        hostname = process.env.HOST,
        reusePort,
      } = this.options;
      this.pronghorn._listening = listen(this.pronghorn.app, {
        port: Number(port),
        host: hostname,
        reusePort,
        disconnect: () => this.close(),
      });
      if (!(this.options.silent ?? process.env.TEST)) console.log(`➜ Listening on: ${this.url}`);
    })();
    return this.ready();
  }

  async ready() {
    await this._ready;
    return this;
  }

  get url() {
    return this.pronghorn.url;
  }

  /** Lets open requests finish; `closeAll`: ends all connections at once. */
  async close(closeAll) {
    await Promise.all([this.pronghorn.close(closeAll ? { timeout: 0 } : {}), ...this._pending]);
  }

  _waitFor(promise) {
    if (typeof promise?.then !== 'function') return;
    const pending = Promise.resolve(promise)
      .catch(console.error)
      .finally(() => this._pending.delete(pending));
    this._pending.add(pending);
  }

  _handlesSignals() {
    const { gracefulShutdown } = this.options;
    return (
      gracefulShutdown !== false &&
      !(gracefulShutdown === undefined && (process.env.CI || process.env.TEST))
    );
  }

  _closeOnSignals() {
    const seconds = this.options.gracefulShutdown?.gracefulTimeout ?? 5;
    const onSignal = () => {
      this.pronghorn.close({ timeout: seconds * 1000 });
      for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, onSignal);
    };
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, onSignal);
    // Signal listeners must not keep a server alive that was closed otherwise.
    this.pronghorn.once('close', () => {
      for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, onSignal);
    });
  }
}

/** Composes the handler: the error handler, then the middleware in order, then `fetch`. */
function compose({ fetch, middleware, error }) {
  const composed = middleware.reduceRight(
    (next, handler) => (request) => handler(request, () => next(request)),
    fetch,
  );
  if (error === undefined) return composed;
  return (request) => {
    try {
      const response = composed(request);
      return typeof response?.then === 'function' ? response.then(undefined, error) : response;
    } catch (thrown) {
      return error(thrown);
    }
  };
}

const serve = (options) => new SrvxServer(options);

module.exports = { serve, FastResponse: Response };
