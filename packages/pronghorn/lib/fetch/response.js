'use strict';

// A light Response, without the costs of the one of Node.js.

const NativeResponse = globalThis.Response;
const NO_CONTENT = [101, 103, 204, 205, 304];

/** Returns names and values, alternating, of an argument of `new Headers`. */
function linesOf(init) {
  const lines = [];
  if (init === undefined) return lines;
  if (typeof init[Symbol.iterator] === 'function') {
    for (const [name, value] of init) lines.push(String(name), String(value));
  } else {
    for (const name of Object.keys(init)) lines.push(name, String(init[name]));
  }
  return lines;
}

const isLight = (body) =>
  body === undefined ||
  body === null ||
  typeof body === 'string' ||
  body instanceof Uint8Array ||
  body instanceof ArrayBuffer ||
  body instanceof ReadableStream;

/**
 * Returns the body as a stream, or `known`, the value it was created from, if that is no stream.
 */
function bodyOf(native, known) {
  if (native.bodyUsed)
    throw new TypeError('the body of this response has been read already: return a clone() of it');
  return known === undefined || known instanceof ReadableStream ? native.body : known;
}

class Response {
  #body;
  #status = 200;
  #lines;
  #headers;
  #real;
  /** The Response of Node.js has all state, and this object none. */
  #isReal = false;

  constructor(body, init) {
    if (!isLight(body)) {
      this.#real = new NativeResponse(body, init);
      this.#isReal = true;
      return;
    }
    if (init !== undefined && init !== null) {
      const { status, statusText, headers } = init;
      const isUsual =
        status === undefined || (Number.isInteger(status) && status >= 200 && status <= 599);
      // The Response of Node.js throws the errors for invalid arguments.
      if (!isUsual || statusText || (body != null && NO_CONTENT.includes(status))) {
        this.#real = new NativeResponse(body, init);
        this.#isReal = true;
        return;
      }
      if (status !== undefined) this.#status = status;
      if (headers !== undefined) this.#lines = linesOf(headers);
    }
    if (body instanceof ReadableStream && body.locked)
      throw new TypeError('Body is unusable: it is locked');
    this.#body = body ?? null;
  }

  static json(data, init) {
    const text = JSON.stringify(data);
    if (text === undefined)
      throw new TypeError('the value cannot be converted to JSON: it is undefined');
    const headers = new Headers(init?.headers);
    if (!headers.has('content-type')) headers.set('content-type', 'application/json');
    return new Response(text, { status: init?.status, statusText: init?.statusText, headers });
  }

  static redirect(url, status) {
    return NativeResponse.redirect(url, status);
  }

  static error() {
    return NativeResponse.error();
  }

  static [Symbol.hasInstance](value) {
    return value instanceof NativeResponse;
  }

  /**
   * Returns the parts to send: status, header lines, body (`null`, bytes, string or stream), and
   * whether a string still needs a content type.
   */
  static parts(response) {
    if (!(#body in response) || response.#isReal) {
      const native = Response.toNative(response);
      return {
        status: native.status,
        lines: linesOf(native.headers),
        body: bodyOf(native),
        needsType: false,
      };
    }
    let body = response.#body;
    let lines = response.#lines;
    let needsType = typeof body === 'string';
    if (response.#headers !== undefined) {
      lines = linesOf(response.#headers);
      // `headers` has the type, unless the program removed it.
      needsType = false;
    } else if (needsType && lines !== undefined) {
      for (let index = 0; index < lines.length; index += 2) {
        if (lines[index].length === 12 && lines[index].toLowerCase() === 'content-type')
          needsType = false;
      }
    }
    if (response.#real !== undefined && body !== null) body = bodyOf(response.#real, body);
    return { status: response.#status, lines, body, needsType };
  }

  #toReal() {
    this.#real ??= new NativeResponse(this.#body, { status: this.#status, headers: this.headers });
    return this.#real;
  }

  static toNative(response) {
    return typeof response === 'object' && response !== null && #body in response
      ? response.#toReal()
      : response;
  }

  get status() {
    return this.#isReal ? this.#real.status : this.#status;
  }

  get ok() {
    return this.status >= 200 && this.status <= 299;
  }

  get statusText() {
    return this.#isReal ? this.#real.statusText : '';
  }

  get headers() {
    if (this.#isReal) return this.#real.headers;
    if (this.#headers === undefined) {
      this.#headers = new Headers();
      const lines = this.#lines ?? [];
      for (let index = 0; index < lines.length; index += 2)
        this.#headers.append(lines[index], lines[index + 1]);
      if (typeof this.#body === 'string' && !this.#headers.has('content-type')) {
        this.#headers.set('content-type', 'text/plain;charset=UTF-8');
      }
    }
    return this.#headers;
  }

  get body() {
    return this.#real === undefined && this.#body === null ? null : this.#toReal().body;
  }

  get bodyUsed() {
    return this.#real === undefined ? false : this.#real.bodyUsed;
  }
}

for (const name of ['redirected', 'type', 'url']) {
  Object.defineProperty(Response.prototype, name, {
    get() {
      return Response.toNative(this)[name];
    },
    configurable: true,
  });
}

for (const name of ['arrayBuffer', 'blob', 'bytes', 'clone', 'formData', 'json', 'text']) {
  Response.prototype[name] = function () {
    return Response.toNative(this)[name]();
  };
}

Object.setPrototypeOf(Response, NativeResponse);
Object.setPrototypeOf(Response.prototype, NativeResponse.prototype);

module.exports = { Response, NativeResponse };
