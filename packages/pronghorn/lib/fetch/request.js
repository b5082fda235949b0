'use strict';

// A lazy Request: its parts are created when they are read.

const { isDisturbed } = require('node:stream');
const { inspect } = require('node:util');
const { Head } = require('../head');
const { clientOf } = require('../client');
const { Content, clientLeft } = require('./content');
const { NativeResponse } = require('./response');

const NativeRequest = globalThis.Request;
const state = Symbol('pronghorn.state');

const decoder = new TextDecoder();

/** One request and its response, shared by Request, body and connection info. */
class Exchange {
  constructor(res, slot) {
    this.res = res;
    this.head = new Head(slot);
    this.client = clientOf(res);
    this.url = undefined;
    this.headers = undefined;
    this.content = undefined;
    this.aborting = undefined;
    this.real = undefined;
    this.info = undefined;
    this.onEnd = undefined;
    this.hasEnded = false;
  }

  getUrl() {
    return (this.url ??= this._url());
  }

  _url() {
    const { head } = this;
    const plain = head.plainUrl;
    if (plain !== '') return plain;
    const scheme = head.encrypted ? 'https' : 'http';
    const text = `${scheme}://${head.first('host')}${head.target === '*' ? '/*' : head.target}`;
    const url = URL.parse?.(text) ?? (URL.canParse(text) ? new URL(text) : undefined);
    // The host is invalid in a URL, such as 1.2.3.999.
    return (url ?? new URL(head.target, `${scheme}://host.invalid`)).href;
  }

  getHeaders() {
    return (this.headers ??= this._headers());
  }

  _headers() {
    const lines = this.head.lines();
    const headers = new Headers();
    for (let index = 0; index < lines.length; index += 2) {
      const [name, value] = [lines[index], lines[index + 1]];
      // Headers would join cookies by commas.
      if (name === 'cookie' && headers.has(name))
        headers.set(name, `${headers.get(name)}; ${value}`);
      else headers.append(name, value);
    }
    return headers;
  }

  /** Returns the body, or `undefined` if there is none. */
  getContent() {
    const { res, head } = this;
    if (
      this.content === undefined &&
      res._hasContent &&
      head.method !== 'GET' &&
      head.method !== 'HEAD'
    ) {
      this.content = new Content(res);
    }
    return this.content;
  }

  getSignal() {
    this.aborting ??= new AbortController();
    if (this.hasEnded === 'aborted') this.abort();
    return this.aborting.signal;
  }

  abort() {
    this.aborting.abort(clientLeft());
  }

  /** Returns a Request of Node.js, for rarely used properties. */
  getReal() {
    if (this.real !== undefined) return this.real;
    const content = this.getContent();
    this.real = new NativeRequest(this.getUrl(), {
      method: this.head.method,
      headers: this.getHeaders(),
      signal: this.getSignal(),
      ...(content === undefined ? {} : { body: content.stream(), duplex: 'half' }),
    });
    return this.real;
  }

  /** Ends the exchange; `aborted`: because the client has left. */
  end(aborted) {
    if (this.hasEnded) return;
    this.hasEnded = aborted ? 'aborted' : 'answered';
    if (aborted && this.aborting !== undefined) this.abort();
    this.content?.end(
      aborted
        ? (this.aborting?.signal.reason ?? clientLeft())
        : new TypeError('the response was sent before the body of the request had been read'),
    );
    this.onEnd?.(aborted);
  }
}

class LazyRequest {
  constructor(exchange) {
    this[state] = exchange;
  }

  get method() {
    return this[state].head.method;
  }

  get url() {
    return this[state].getUrl();
  }

  get headers() {
    return this[state].getHeaders();
  }

  get signal() {
    const { real } = this[state];
    return real === undefined ? this[state].getSignal() : real.signal;
  }

  get body() {
    const exchange = this[state];
    if (exchange.real !== undefined) return exchange.real.body;
    return exchange.getContent()?.stream() ?? null;
  }

  get bodyUsed() {
    const { real, content } = this[state];
    return real?.bodyUsed === true || content?.isUsed === true || isTaken(content?._stream);
  }

  async text() {
    return decoder.decode(await collect(this));
  }

  async json() {
    return JSON.parse(await this.text());
  }

  async arrayBuffer() {
    const content = await collect(this);
    return content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength);
  }

  async bytes() {
    return new Uint8Array(await this.arrayBuffer());
  }

  async blob() {
    return new Blob([await collect(this)], { type: this.headers.get('content-type') ?? '' });
  }

  async formData() {
    // Parsed by Node.js.
    const type = this.headers.get('content-type');
    return new NativeResponse(await collect(this), {
      headers: type === null ? {} : { 'content-type': type },
    }).formData();
  }

  clone() {
    return this[state].getReal().clone();
  }

  /**
   * Formats the request for `console.log`, without a Request of Node.js, which would consume the
   * body.
   */
  [inspect.custom](depth, options, show) {
    if (depth < 0) return '[Request]';
    const seen = {};
    for (const name of ['method', 'url', 'headers', 'bodyUsed']) {
      try {
        seen[name] = this[name];
      } catch {
        // Not available any more.
      }
    }
    return `Request ${show(seen, options)}`;
  }
}

/** Reads the whole body as a Buffer. */
async function collect(request) {
  const exchange = request[state];
  if (exchange.real !== undefined || exchange.content?._stream !== undefined) {
    return Buffer.from(await exchange.getReal().arrayBuffer());
  }
  const content = exchange.getContent();
  if (content === undefined) return Buffer.alloc(0);
  if (content.isUsed) throw new TypeError('Body is unusable: Body has already been read');
  return content.collect();
}

/** Returns whether a stream was read or is locked. */
function isTaken(stream) {
  return stream !== undefined && (stream.locked || isDisturbed(stream));
}

for (const name of [
  'cache',
  'credentials',
  'destination',
  'duplex',
  'integrity',
  'keepalive',
  'mode',
  'redirect',
  'referrer',
  'referrerPolicy',
]) {
  Object.defineProperty(LazyRequest.prototype, name, {
    get() {
      return this[state].getReal()[name];
    },
    configurable: true,
  });
}

Object.setPrototypeOf(LazyRequest.prototype, NativeRequest.prototype);

/** Returns the Request of Node.js for a lazy one, and anything else unchanged. */
const toNative = (input) => (input instanceof LazyRequest ? input[state].getReal() : input);

/** The `globalThis.Request` that accepts lazy requests. */
class Request extends NativeRequest {
  constructor(input, init) {
    const needsDuplex =
      init?.body !== undefined &&
      init.duplex === undefined &&
      typeof init.body?.getReader === 'function';
    super(
      toNative(input),
      needsDuplex ? Object.create(init, { duplex: { value: 'half', enumerable: true } }) : init,
    );
  }

  static [Symbol.hasInstance](value) {
    return value instanceof NativeRequest;
  }
}

module.exports = { Exchange, LazyRequest, Request, NativeRequest, toNative, state };
