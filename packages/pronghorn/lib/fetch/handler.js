'use strict';

const { Exchange, LazyRequest, toNative, Request, NativeRequest } = require('./request');
const { Response, NativeResponse } = require('./response');
const { send } = require('./send');
const { noFunction } = require('../errors');

/** The client and connection: the second argument of fetch handlers, and `c.env` of Hono. */
class ConnectionInfo {
  #exchange;

  constructor(exchange) {
    this.#exchange = exchange;
  }

  get remote() {
    const { address, port, family } = this.#exchange.head;
    return { address, port, family };
  }

  /** Returns `http/1.1`, `h2` or `h3`. */
  get protocol() {
    return this.#exchange.head.protocol;
  }

  get encrypted() {
    return this.#exchange.head.encrypted;
  }

  /** Returns whether the request arrived in 0-RTT, where an attacker can replay it. */
  get earlyData() {
    return this.#exchange.head.earlyData;
  }

  /** Returns the client's certificate, an X509Certificate; `undefined` if there is none. */
  get clientCertificate() {
    return this.#exchange.client.certificate;
  }

  /** Returns whether the client's certificate is trusted. */
  get authorized() {
    return this.#exchange.client.authorized;
  }

  /** Returns the properties that programs for @hono/node-server use. */
  get incoming() {
    const { head, client } = this.#exchange;
    const { address, port, family } = head;
    return {
      method: head.method,
      url: head.target,
      httpVersion: { 1: '1.1', 2: '2.0', 3: '3.0' }[head.version],
      headers: Object.fromEntries(this.#exchange.getHeaders()),
      rawHeaders: head.lines(),
      socket: {
        remoteAddress: address,
        remotePort: port,
        remoteFamily: family,
        encrypted: head.encrypted,
        authorized: client.authorized,
        authorizationError: client.authorizationError,
        getPeerCertificate: (isDetailed) => client.peerCertificate(isDetailed),
      },
    };
  }
}

/** Returns whether an error is only the result of the client leaving, which is not reported. */
const isAbort = (exchange, error) =>
  exchange.hasEnded === 'aborted' && error?.name === 'AbortError';

function watch(exchange) {
  if (!exchange.res._done) exchange.res.onAborted(() => exchange.end(true));
}

/**
 * Returns a route handler, as for `app.any('/*', …)`, that sends the response of `fetch(request,
 * info)`.
 */
function fetchHandler(fetch, { onError } = {}) {
  return handlerOf(fetch, { onError, makeRequest: (exchange) => new LazyRequest(exchange) });
}

function handlerOf(fetch, { onError, makeRequest }) {
  if (typeof fetch !== 'function') throw noFunction('fetchHandler()', fetch);
  if (onError !== undefined && typeof onError !== 'function') throw noFunction('onError', onError);

  /** Sends a response. An exception is answered 500. */
  const answer = (exchange, response) => send(exchange, response);
  const recover = async (exchange, error) => {
    if (isAbort(exchange, error)) return;
    if (onError === undefined || exchange.res._done || exchange.res._begun) throw error;
    await answer(exchange, await onError(error));
  };

  return (res, req) => {
    const exchange = new Exchange(res, req._slot);
    let result;
    try {
      const response = fetch(makeRequest(exchange), new ConnectionInfo(exchange));
      result =
        typeof response?.then === 'function'
          ? response.then((known) => answer(exchange, known))
          : answer(exchange, response);
    } catch (error) {
      if (onError === undefined) {
        exchange.end(false);
        throw error;
      }
      result = recover(exchange, error);
      watch(exchange);
      return result;
    }
    if (result === undefined) return undefined;
    watch(exchange);
    return result
      .then(undefined, (error) => recover(exchange, error))
      .finally(() => exchange.end(false));
  };
}

let isOverridden = false;

/**
 * Replaces the global `Response`, `Request` and `fetch` by faster ones, for frameworks that use the
 * globals.
 */
function overrideGlobals() {
  if (isOverridden) return;
  isOverridden = true;
  const nativeFetch = globalThis.fetch;
  const globals = {
    Request,
    Response,
    fetch: function fetch(input, init) {
      return nativeFetch(toNative(input), init);
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, {
      value,
      writable: true,
      configurable: true,
      enumerable: false,
    });
  }
}

module.exports = {
  fetchHandler,
  handlerOf,
  overrideGlobals,
  Response,
  NativeResponse,
  NativeRequest,
  toNative,
};
