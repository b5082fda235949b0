'use strict';

const native = require('./native');
const answers = require('./answers');
const { pemOf } = require('./client');
const context = require('./context');
const { writeField } = require('./head');
const { recognized, recognizedText, textBuffer } = require('./text');
const { usedAfterEnd, usedAfterBegin, noFunction } = require('./errors');

/** Responses that are not ended when their handlers return, by slot. */
const live = new Map();

/** Content that fits here at once need not be written piece by piece. */
const WHOLE_BYTES = 64 << 10;
const NO_LIMIT = 2n ** 64n - 1n;

/** Which callbacks and states most responses never have. */
class Later {
  constructor() {
    this.onAborted = [];
    this.onData = undefined;
    /** What is read after the response will not come any more: the client has left. */
    this.onLost = [];
    this.onWritable = undefined;
    this.paused = false;
    /** Content that rests in `pause` when the response is complete goes on all the same. */
    this.outlastsPause = false;
    this.readable = false;
    this.last = false;
    /** Bytes of content that may still come; `undefined` where nothing says. */
    this.remaining = undefined;
    /** The handler has returned: the request's head is gone. */
    this.returned = false;
  }
}

/** The answer to one request, and the asynchronous context of all that the program is called for. */
class HttpResponse extends context.AsyncResource {
  constructor(slot, route, hasContent) {
    super('PRONGHORNREQUEST', context.OPTIONS);
    this._slot = slot;
    this._route = route;
    this._hasContent = hasContent;
    this._done = false;
    this._begun = false;
    /** The response is complete, and the request's content still read. */
    this._readsOn = false;
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
    if (this._done && !this._readsOn) throw usedAfterEnd(`res.${call}()`);
    return this._slot;
  }

  /** Nothing more is said or heard of it. */
  _finish() {
    if (this._done && !this._readsOn) return;
    this._done = true;
    this._readsOn = false;
    if (this._later !== undefined && this._later.returned) live.delete(this._slot);
    this.emitDestroy();
  }

  /** The request is granted for what goes on in its asynchronous context, which ends with that. */
  _handOver() {
    this._done = true;
    if (this._later !== undefined && this._later.returned) live.delete(this._slot);
  }

  /** The response is complete; to be called before the other side is told. What somebody reads of the request's content goes on coming. */
  _complete(closeConnection) {
    const later = this._later;
    if (later === undefined || later.onData === undefined) return this._finish();
    if (later.last && !later.readable) return this._finish();
    if (this._hasContent) {
      // Nobody goes on with what rests, and a connection that is to be closed brings nothing.
      if (closeConnection || (later.paused && !later.outlastsPause)) return this._finish();
      answers.readOn(this._slot);
    }
    this._done = this._readsOn = true;
  }

  /** Of content that goes on coming after the response. */
  _stopReading() {
    this._finish();
    answers.forget(this._slot);
  }

  // ---- the head -------------------------------------------------------------------------------------------------------------

  writeStatus(status) {
    const slot = this._head('writeStatus');
    const text = typeof status === 'number' ? String(status) : recognizedText('res.writeStatus()', status);
    const code = Number(text.slice(0, 3));
    // Upgrade handlers say it, and so does the upgrade itself.
    if (code === 101 && this._route.isUpgrade) return this;
    if (!Number.isInteger(code) || code < 200 || code > 599 || (text.length > 3 && text[3] !== ' ')) {
      const hint = code >= 100 && code < 200 ? ' For 103 there is res.writeEarlyHints().' : '';
      throw new TypeError(
        `${JSON.stringify(text)} is no status of a response: write it as '404 Not Found' or '404', from 200 to 599.${hint}`,
      );
    }
    answers.status(slot, code);
    return this;
  }

  writeHeader(name, value) {
    const slot = this._head('writeHeader');
    const known = typeof name === 'string' ? name : recognizedText('res.writeHeader()', name);
    if (typeof value === 'string') answers.field(slot, known, value);
    else writeField(slot, known, Buffer.from(recognized('res.writeHeader()', value)).toString('latin1'));
    return this;
  }

  /** Sends 103 (Early Hints) before the response: `link` fields, or an object of fields. */
  writeEarlyHints(hints) {
    const slot = this._head('writeEarlyHints');
    const fields = typeof hints === 'string' || Array.isArray(hints) ? { link: hints } : hints;
    const lines = [];
    for (const [name, value] of Object.entries(fields)) {
      for (const line of Array.isArray(value) ? value : [value]) {
        if (/[\r\n\0]/.test(line))
          throw new TypeError(`The value of ${name} has a line break or a zero, which no header may have.`);
        lines.push(`${name}: ${line}`);
      }
    }
    native.inform(slot, 103, lines.join('\n'));
    return this;
  }

  // ---- the content ----------------------------------------------------------------------------------------------------------

  end(content, closeConnection) {
    const slot = this._check('end');
    const known = content === undefined || content === null ? '' : recognized('res.end()', content);
    this._complete(closeConnection);
    answers.end(slot, this._route, known, Boolean(closeConnection));
    return this;
  }

  endWithoutBody(reportedLength, closeConnection) {
    const slot = this._check('endWithoutBody');
    const reported = reportedLength === undefined ? undefined : Number(reportedLength);
    if (reported !== undefined && (!Number.isSafeInteger(reported) || reported < 0)) {
      throw new TypeError(`res.endWithoutBody() takes the length that is announced, not ${reportedLength}.`);
    }
    this._complete(closeConnection);
    answers.endWithoutContent(slot, reported, Boolean(closeConnection));
    return this;
  }

  /** Sends the head; what follows is content. */
  beginWrite() {
    const slot = this._check('beginWrite');
    if (!this._begun) native.begin(slot);
    this._begun = true;
    return this;
  }

  /** Adds content. Returns whether there is room for more: if not, wait for `onWritable`. */
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
      throw new TypeError(`res.tryEnd() takes the size of the whole content as its second argument, not ${totalSize}.`);
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

  /** How many bytes of content were taken so far. */
  getWriteOffset() {
    const slot = this._check('getWriteOffset');
    return this._begun ? native.offset(slot) : 0;
  }

  /** Groups what `callback` writes. */
  cork(callback) {
    if (typeof callback !== 'function') throw noFunction('res.cork()', callback);
    this._check('cork');
    answers.hold();
    try {
      callback(this);
    } finally {
      answers.release();
    }
    return this;
  }

  /** Ends without a response: resets the stream, over HTTP/1.1 closes the connection. */
  close() {
    const slot = this._check('close');
    this._finish();
    answers.abort(slot);
    runAll(this, this._later?.onAborted);
    return this;
  }

  /**
   * Grants a WebSocket connection, and calls its open handler: `(userData, key, protocol, extensions, context)`, where the texts are those
   * of the request's `sec-websocket-` headers and `context` is what the upgrade handler was given. Or a WebTransport session:
   * `(userData, context)`.
   */
  upgrade(userData, ...rest) {
    const webtransport = require('./webtransport');
    const context = rest.at(-1);
    if (context instanceof webtransport.SessionContext) webtransport.upgrade(this, userData, context);
    else require('./websocket').upgrade(this, userData, ...rest);
  }

  // ---- what happens later ---------------------------------------------------------------------------------------------------

  _getLater() {
    return (this._later ??= new Later());
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

  /** `callback(chunk, maxRemaining)`: how many bytes may still come; 0n with the last. */
  onDataV2(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onDataV2()', callback);
    let remaining = this.maxRemainingBodyLength();
    let isOver = false;
    this._read('onDataV2', (chunk, isLast) => {
      if (isOver) return;
      if (remaining !== NO_LIMIT) remaining -= BigInt(chunk.byteLength);
      // The last bytes may come before it is said that they are the last.
      isOver = isLast || remaining === 0n;
      callback(chunk, isLast ? 0n : remaining);
    });
    return this;
  }

  /** `callback(res or null, chunk, maxRemaining)`: `null` when the client has left. */
  onDataOrAborted(callback) {
    if (typeof callback !== 'function') throw noFunction('res.onDataOrAborted()', callback);
    const onLost = () => callback(null, new ArrayBuffer(0), 0n);
    this.onAborted(onLost);
    this._getLater().onLost.push(onLost);
    return this.onDataV2((chunk, remaining) => callback(this, chunk, remaining));
  }

  /** `callback(body or null)`: all of it, or `null` if it is larger than `maxSize`. */
  collectBody(maxSize, callback) {
    if (typeof callback !== 'function') throw noFunction('res.collectBody()', callback);
    if (typeof maxSize !== 'number' || !(maxSize >= 0)) {
      throw new TypeError(
        `res.collectBody() takes the most bytes that it may collect, a number, not ${String(maxSize)}.`,
      );
    }
    let chunks = [];
    let size = 0;
    this._read('collectBody', (chunk, isLast) => {
      if (chunks === undefined) return;
      size += chunk.byteLength;
      if (size > maxSize) {
        chunks = undefined;
        if (this._readsOn) this._stopReading();
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

  /** How many bytes of content may still come, as far as the request says; 2n ** 64n - 1n where it does not. */
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
    else if (later.returned) queueMicrotask(() => giveEmpty(this));
  }

  /** Holds the client back; what has come already may still be given. */
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
        if ((!this._done || this._readsOn) && !later.paused && later.readable) guard(this, give);
      });
    }
    if (this._hasContent && later.onData !== undefined) native.read(slot, false);
    return this;
  }

  // ---- the connection -------------------------------------------------------------------------------------------------------

  getRemoteAddress() {
    return native.remoteAddress(this._check('getRemoteAddress'));
  }

  getRemoteAddressAsText() {
    return textBuffer(native.remoteAddressAsText(this._check('getRemoteAddressAsText')));
  }

  getRemotePort() {
    return native.remotePort(this._check('getRemotePort'));
  }

  /** Empty: no proxy announces its client (PROXY protocol) here. */
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

  /** `http/1.1`, `h2` or `h3`. */
  getProtocol() {
    return native.protocol(this._check('getProtocol'));
  }

  /** The name that the client asked for in TLS (SNI), in lower case; '' in clear text, and if it gave none. */
  getServerName() {
    return native.serverName(this._check('getServerName'));
  }

  /** The certificate that the client has shown, in PEM form; '' if it was not asked, or showed none. */
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

// ---- what the program's callbacks do --------------------------------------------------------------------------------------------

/** Runs `action(res)` in its context; what it throws fails the response, or ends what is read after it. */
function guard(res, action) {
  res.runInAsyncScope(guarded, undefined, res, action);
}

function guarded(res, action) {
  try {
    action(res);
  } catch (error) {
    fail(res, error);
    if (res._readsOn) lose(res);
  }
}

/** What is read after the response will not come. */
function lose(res) {
  const { onLost } = res._later;
  res._stopReading();
  runAll(res, onLost);
}

function runAll(res, callbacks) {
  if (callbacks !== undefined && callbacks.length > 0) res.runInAsyncScope(callAll, undefined, res, callbacks);
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

/** The handler has failed: the client gets 500, or an end that it cannot take for a complete response. */
function fail(res, error) {
  report(res, error);
  if (res._done) return;
  const slot = res._slot;
  res._finish();
  if (res._begun) {
    answers.abort(slot);
    return;
  }
  // What was meant for another response does not fit this one: a cache would keep it, and a coding would not be true.
  answers.clear(slot);
  answers.status(slot, 500);
  answers.field(slot, 'cache-control', 'no-store');
  answers.end(slot, res._route, '', false);
}

function giveEmpty(res) {
  if (res._done && !res._readsOn) return;
  res._later.last = true;
  guard(res, () => res._later.onData(new ArrayBuffer(0), true));
  if (res._readsOn) res._stopReading();
}

function give(res) {
  const later = res._later;
  later.readable = false;
  later.onData(native.takeContent(res._slot), later.last);
  if (later.last && res._readsOn) res._stopReading();
}

module.exports = { HttpResponse, live, fail, lose, runAll, guard, give, giveEmpty };
