'use strict';

const native = require('./native');
const operations = require('./operations');
const { pemOf } = require('./client');
const context = require('./context');
const { writeField } = require('./head');
const { recognized, recognizedText, textBuffer } = require('./text');
const { usedAfterEnd, usedAfterBegin, noFunction } = require('./errors');

/** Responses that were open when their handlers returned, by slot. */
const live = new Map();

/** Maximum size of a complete body that `tryEnd` passes on as a whole. */
const WHOLE_BYTES = 64 << 10;
const NO_LIMIT = 2n ** 64n - 1n;

/** Callbacks and state that most responses never need. */
class ResponseState {
  constructor() {
    this.onAborted = [];
    this.onData = undefined;
    /** Called when the client leaves while its body is read after the response. */
    this.onLost = [];
    this.onWritable = undefined;
    this.paused = false;
    /** A body that is paused when the response completes can still be resumed. */
    this.outlastsPause = false;
    this.readable = false;
    this.last = false;
    /** Maximum number of body bytes to come; `undefined` until it is determined. */
    this.remaining = undefined;
    /** The handler has returned, and the request's head was freed. */
    this.returned = false;
  }
}

/** The response to one request, and the asynchronous context of its callbacks. */
class HttpResponse extends context.AsyncResource {
  constructor(slot, route, hasContent) {
    super('PRONGHORNREQUEST', context.OPTIONS);
    this._slot = slot;
    this._route = route;
    this._hasContent = hasContent;
    this._done = false;
    this._begun = false;
    /** The response is complete, and the request body is still being read. */
    this._readsAfterResponse = false;
    this._later = undefined;
  }

  _check(call) {
    if (this._done) throw usedAfterEnd(`res.${call}()`);
    return this._slot;
  }

  _head(call) {
    if (this._done) throw usedAfterEnd(`res.${call}()`);
    if (this._begun) throw usedAfterBegin(`res.${call}()`);
    return this._slot;
  }

  _reading(call) {
    if (this._done && !this._readsAfterResponse) throw usedAfterEnd(`res.${call}()`);
    return this._slot;
  }

  /** Ends the exchange. No callbacks follow. */
  _finish() {
    if (this._done && !this._readsAfterResponse) return;
    this._done = true;
    this._readsAfterResponse = false;
    if (this._later !== undefined && this._later.returned) live.delete(this._slot);
    this.emitDestroy();
  }

  /**
   * Ends the response for an upgrade that continues in this asynchronous context, and ends it
   * later.
   */
  _handOver() {
    this._done = true;
    if (this._later !== undefined && this._later.returned) live.delete(this._slot);
  }

  /**
   * Marks the response as complete, before the addon is told. A body that is being read is still
   * delivered.
   */
  _complete(closeConnection) {
    const later = this._later;
    if (later === undefined || later.onData === undefined) return this._finish();
    if (later.last && !later.readable) return this._finish();
    if (this._hasContent) {
      // A paused body would never be resumed, and a connection about to close delivers nothing.
      if (closeConnection || (later.paused && !later.outlastsPause)) return this._finish();
      operations.keepReading(this._slot);
    }
    this._done = this._readsAfterResponse = true;
  }

  /** Stops reading the body after the response. */
  _stopReading() {
    this._finish();
    operations.forget(this._slot);
  }

  // ---- the head

  writeStatus(status) {
    const slot = this._head('writeStatus');
    const text =
      typeof status === 'number' ? String(status) : recognizedText('res.writeStatus()', status);
    const code = Number(text.slice(0, 3));
    // Upgrade handlers may write it; the upgrade sends it anyway.
    if (code === 101 && this._route.isUpgrade) return this;
    if (
      !Number.isInteger(code) ||
      code < 200 ||
      code > 599 ||
      (text.length > 3 && text[3] !== ' ')
    ) {
      const hint = code >= 100 && code < 200 ? '; for 103, call res.writeEarlyHints()' : '';
      throw new TypeError(
        `invalid status ${JSON.stringify(text)}: write it as '404 Not Found' or '404', from 200 to 599${hint}`,
      );
    }
    operations.status(slot, code);
    return this;
  }

  writeHeader(name, value) {
    const slot = this._head('writeHeader');
    const known = typeof name === 'string' ? name : recognizedText('res.writeHeader()', name);
    if (typeof value === 'string') operations.field(slot, known, value);
    else
      writeField(
        slot,
        known,
        Buffer.from(recognized('res.writeHeader()', value)).toString('latin1'),
      );
    return this;
  }

  /** Sends 103 (Early Hints) before the response: `link` headers, or an object of headers. */
  writeEarlyHints(hints) {
    const slot = this._head('writeEarlyHints');
    const fields = typeof hints === 'string' || Array.isArray(hints) ? { link: hints } : hints;
    const lines = [];
    for (const [name, value] of Object.entries(fields)) {
      for (const line of Array.isArray(value) ? value : [value]) {
        if (/[\r\n\0]/.test(line))
          throw new TypeError(
            `invalid value of header ${name}: it contains a line break or a zero`,
          );
        lines.push(`${name}: ${line}`);
      }
    }
    native.inform(slot, 103, lines.join('\n'));
    return this;
  }

  // ---- the body

  end(content, closeConnection) {
    const slot = this._check('end');
    const known = content === undefined || content === null ? '' : recognized('res.end()', content);
    this._complete(closeConnection);
    operations.end(slot, this._route, known, Boolean(closeConnection));
    return this;
  }

  endWithoutBody(reportedLength, closeConnection) {
    const slot = this._check('endWithoutBody');
    const reported = reportedLength === undefined ? undefined : Number(reportedLength);
    if (reported !== undefined && (!Number.isSafeInteger(reported) || reported < 0)) {
      throw new TypeError(
        `res.endWithoutBody() takes the length that is announced, not ${reportedLength}`,
      );
    }
    this._complete(closeConnection);
    operations.endWithoutContent(slot, reported, Boolean(closeConnection));
    return this;
  }

  /** Sends the head. The body follows. */
  beginWrite() {
    const slot = this._check('beginWrite');
    if (!this._begun) native.begin(slot);
    this._begun = true;
    return this;
  }

  /** Sends a part of the body. Returns whether to continue; if not, wait for `onWritable`. */
  write(content) {
    const slot = this._check('write');
    const known = recognized('res.write()', content);
    this._begun = true;
    return native.write(slot, known);
  }

  tryEnd(content, totalSize) {
    const slot = this._check('tryEnd');
    const known = recognized('res.tryEnd()', content);
    const size = typeof known === 'string' ? Buffer.byteLength(known) : known.byteLength;
    const total = totalSize === undefined ? size : Number(totalSize);
    if (!Number.isSafeInteger(total) || total < 0) {
      throw new TypeError(
        `res.tryEnd() takes the size of the whole body as its second argument, not ${totalSize}`,
      );
    }
    if (!this._begun && size === total && size <= WHOLE_BYTES) {
      this.end(known);
      return [true, true];
    }
    this._begun = true;
    const result = native.tryEnd(slot, known, total);
    const isComplete = (result & 2) !== 0;
    if (isComplete) this.end();
    return [(result & 1) !== 0, isComplete];
  }

  /** Returns the number of body bytes accepted so far. */
  getWriteOffset() {
    const slot = this._check('getWriteOffset');
    return this._begun ? native.offset(slot) : 0;
  }

  /** Passes the operations of `callback` to the addon in one call. */
  cork(callback) {
    if (typeof callback !== 'function') throw noFunction('res.cork()', callback);
    this._check('cork');
    operations.hold();
    try {
      callback(this);
    } finally {
      operations.release();
    }
    return this;
  }

  /** Aborts the response: resets the stream, or closes the connection over HTTP/1.1. */
  close() {
    const slot = this._check('close');
    this._finish();
    operations.abort(slot);
    runAll(this, this._later?.onAborted);
    return this;
  }

  /**
   * Accepts a WebSocket upgrade and calls the open handler: `(userData, key, protocol, extensions,
   * context)`, with the request's `sec-websocket-` headers and the context of the upgrade handler.
   * Or accepts a WebTransport session: `(userData, context)`.
   */
  upgrade(userData, ...rest) {
    const webtransport = require('./webtransport');
    const context = rest.at(-1);
    if (context instanceof webtransport.SessionContext)
      webtransport.upgrade(this, userData, context);
    else require('./websocket').upgrade(this, userData, ...rest);
  }

  // ---- callbacks

  _getLater() {
    return (this._later ??= new ResponseState());
  }

  onAborted(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onAborted()', callback);
    this._check('onAborted');
    this._getLater().onAborted.push(callback);
    return this;
  }

  onWritable(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onWritable()', callback);
    this._check('onWritable');
    this._getLater().onWritable = callback;
    return this;
  }

  onData(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onData()', callback);
    this._read('onData', (chunk, isLast) => callback(chunk, isLast));
    return this;
  }

  /** Calls `callback(chunk, maxRemaining)` with the maximum of bytes to come; 0n with the last. */
  onDataV2(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onDataV2()', callback);
    let remaining = this.maxRemainingBodyLength();
    let isOver = false;
    this._read('onDataV2', (chunk, isLast) => {
      if (isOver) return;
      if (remaining !== NO_LIMIT) remaining -= BigInt(chunk.byteLength);
      // The last bytes may arrive before the end of the body is known.
      isOver = isLast || remaining === 0n;
      callback(chunk, isLast ? 0n : remaining);
    });
    return this;
  }

  /** Calls `callback(res, chunk, maxRemaining)`, with `null` for `res` when the client has left. */
  onDataOrAborted(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onDataOrAborted()', callback);
    const onLost = () => callback(null, new ArrayBuffer(0), 0n);
    this.onAborted(onLost);
    this._getLater().onLost.push(onLost);
    return this.onDataV2((chunk, remaining) => callback(this, chunk, remaining));
  }

  /** Calls `callback(body)` with the whole body, or with `null` if it is larger than `maxSize`. */
  collectBody(maxSize, callback) {
    if (typeof callback !== 'function') throw noFunction('res.collectBody()', callback);
    if (typeof maxSize !== 'number' || !(maxSize >= 0)) {
      throw new TypeError(
        `res.collectBody() takes the maximum size of the body in bytes, a number, not ${String(maxSize)}`,
      );
    }
    let chunks = [];
    let size = 0;
    this._read('collectBody', (chunk, isLast) => {
      if (chunks === undefined) return;
      size += chunk.byteLength;
      if (size > maxSize) {
        chunks = undefined;
        if (this._readsAfterResponse) this._stopReading();
        else this.pause();
        callback(null);
      } else if (isLast) {
        const whole = chunks.length === 0 ? chunk : join([...chunks, chunk], size);
        chunks = undefined;
        callback(whole);
      } else if (chunk.byteLength > 0) {
        chunks.push(chunk);
      }
    });
    return this;
  }

  /** Returns the maximum of body bytes to come; 2n ** 64n - 1n if the length is unknown. */
  maxRemainingBodyLength() {
    const slot = this._check('maxRemainingBodyLength');
    if (!this._hasContent) return 0n;
    const later = this._getLater();
    if (later.remaining === undefined) {
      const length = later.returned ? '' : native.header(slot, 'content-length');
      later.remaining = /^\d+$/.test(length) ? BigInt(length) : NO_LIMIT;
    }
    return later.remaining;
  }

  _read(call, callback) {
    const slot = this._check(call);
    const later = this._getLater();
    const isFirst = later.onData === undefined;
    this.maxRemainingBodyLength();
    later.onData = callback;
    if (!isFirst) return;
    if (this._hasContent) native.read(slot, later.paused);
    else if (later.returned) queueMicrotask(() => deliverEmptyBody(this));
  }

  /** Holds the client back. A chunk that was received already may still be delivered. */
  pause() {
    const slot = this._reading('pause');
    const later = this._getLater();
    later.paused = true;
    if (this._hasContent && later.onData !== undefined) native.read(slot, true);
    return this;
  }

  resume() {
    const slot = this._reading('resume');
    const later = this._getLater();
    if (!later.paused) return this;
    later.paused = false;
    if (later.readable) {
      queueMicrotask(() => {
        if ((!this._done || this._readsAfterResponse) && !later.paused && later.readable)
          guard(this, deliverBody);
      });
    }
    if (this._hasContent && later.onData !== undefined) native.read(slot, false);
    return this;
  }

  // ---- the connection

  getRemoteAddress() {
    return native.remoteAddress(this._check('getRemoteAddress'));
  }

  getRemoteAddressAsText() {
    return textBuffer(native.remoteAddressAsText(this._check('getRemoteAddressAsText')));
  }

  getRemotePort() {
    return native.remotePort(this._check('getRemotePort'));
  }

  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddress() {
    this._check('getProxiedRemoteAddress');
    return new ArrayBuffer(0);
  }

  getProxiedRemoteAddressAsText() {
    this._check('getProxiedRemoteAddressAsText');
    return new ArrayBuffer(0);
  }

  getProxiedRemotePort() {
    this._check('getProxiedRemotePort');
    return 0;
  }

  /** Returns `http/1.1`, `h2` or `h3`. */
  getProtocol() {
    return native.protocol(this._check('getProtocol'));
  }

  /** Returns the server name of the TLS handshake (SNI) in lower case; '' if there is none. */
  getServerName() {
    return native.serverName(this._check('getServerName'));
  }

  /** Returns the client's certificate in PEM form; '' if there is none. */
  getX509Certificate() {
    return pemOf(this._check('getX509Certificate'));
  }
}

function join(chunks, size) {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(new Uint8Array(chunk), at);
    at += chunk.byteLength;
  }
  return whole.buffer;
}

// ---- calling the program

/** Runs `action(res)` in its context. An exception fails the response, or ends reading after it. */
function guard(res, action) {
  res.runInAsyncScope(guarded, undefined, res, action);
}

function guarded(res, action) {
  try {
    action(res);
  } catch (error) {
    fail(res, error);
    if (res._readsAfterResponse) onBodyLost(res);
  }
}

/** Handles a client that left while its body was read after the response. */
function onBodyLost(res) {
  const { onLost } = res._later;
  res._stopReading();
  runAll(res, onLost);
}

function runAll(res, callbacks) {
  if (callbacks !== undefined && callbacks.length > 0)
    res.runInAsyncScope(callAll, undefined, res, callbacks);
}

function callAll(res, callbacks) {
  for (const callback of callbacks) {
    try {
      callback();
    } catch (error) {
      report(res, error);
    }
  }
}

function report(res, error) {
  const { app, method, pattern } = res._route;
  app._report(error, `${method} ${pattern}`);
}

/** Reports a failed handler, and answers 500, or aborts a response that has begun. */
function fail(res, error) {
  report(res, error);
  if (res._done) return;
  const slot = res._slot;
  res._finish();
  if (res._begun) {
    operations.abort(slot);
    return;
  }
  // Headers of the intended response do not fit this one: caches would keep it, and a
  // content-encoding would be wrong.
  operations.clear(slot);
  operations.status(slot, 500);
  operations.field(slot, 'cache-control', 'no-store');
  operations.end(slot, res._route, '', false);
}

function deliverEmptyBody(res) {
  if (res._done && !res._readsAfterResponse) return;
  res._later.last = true;
  guard(res, () => res._later.onData(new ArrayBuffer(0), true));
  if (res._readsAfterResponse) res._stopReading();
}

function deliverBody(res) {
  const later = res._later;
  later.readable = false;
  later.onData(native.takeContent(res._slot), later.last);
  if (later.last && res._readsAfterResponse) res._stopReading();
}

module.exports = {
  HttpResponse,
  live,
  fail,
  onBodyLost,
  runAll,
  guard,
  deliverBody,
  deliverEmptyBody,
};
