'use strict';

// Responses are ServerResponses of node:http. Methods are set as own properties, because frameworks
// such as Express replace the prototype.

const diagnostics = require('node:diagnostics_channel');
const http = require('node:http');
const native = require('../native');
const operations = require('../operations');
const { writeField } = require('../head');
const { keepContent, finishRequest } = require('./incoming');

const MAX_STATUS = 999;
/** Diagnostics channel of tools that instrument node:http. */
const responseFinish = diagnostics.channel('http.server.response.finish');

function makeResponse(Base, message, socket) {
  // The constructor enables chunks and keep-alive only for version 1.1.
  const { httpVersionMajor: major, httpVersionMinor: minor } = message;
  message.httpVersionMajor = message.httpVersionMinor = 1;
  const response = new Base(message);
  message.httpVersionMajor = major;
  message.httpVersionMinor = minor;
  response._storeHeader = storeHeader;
  response.write = write;
  response.end = end;
  response.flushHeaders = flushHeaders;
  response.addTrailers = addTrailers;
  response.writeContinue = writeContinue;
  response.writeProcessing = writeProcessing;
  response.writeEarlyHints = writeEarlyHints;
  response._onClosed = onClosed;
  response.on('finish', finished);
  /** The HttpResponse underneath. */
  response._answer = socket._res;
  /** Whether back-pressure is on: `write` has returned false. */
  response._isFull = false;
  /** Callbacks to call when it is off again. */
  response._flushed = undefined;
  response._waiting = 0;
  response._lines = undefined;
  response.socket = socket;
  socket._httpMessage = response;
  return response;
}

function failure(Kind, code, text) {
  const error = new Kind(text);
  error.code = code;
  return error;
}

// ---- the head

/** Called by `writeHead` with the headers, in one of the forms that it accepts. */
function storeHeader(firstLine, headers) {
  const answer = this._answer;
  const { statusCode } = this;
  if (!(statusCode >= 200 && statusCode <= MAX_STATUS)) {
    throw failure(
      RangeError,
      'ERR_HTTP_INVALID_STATUS_CODE',
      `Invalid status code: ${statusCode}; use one from 200 to 999`,
    );
  }
  const lines = [];
  const isOwn = headers !== undefined && !Array.isArray(headers) && headers === ownHeaders(this);
  if (Array.isArray(headers)) {
    if (headers.length > 0 && Array.isArray(headers[0])) {
      for (const [name, value] of headers) addLines(lines, name, value, false);
    } else {
      for (let index = 0; index < headers.length; index += 2)
        addLines(lines, headers[index], headers[index + 1], false);
    }
  } else if (isOwn) {
    for (const name in headers) addLines(lines, headers[name][0], headers[name][1], true);
  } else if (headers) {
    for (const name of Object.keys(headers)) addLines(lines, name, headers[name], false);
  }
  this._header = firstLine;
  this._headerSent = false;
  if (answer._done) return;
  if (statusCode !== 200) operations.status(answer._slot, statusCode);
  for (let index = 0; index < lines.length; index += 2)
    writeField(answer._slot, lines[index], lines[index + 1]);
}

/** A response whose symbols show where node:http keeps internal state. */
const probe = new http.ServerResponse({
  method: 'GET',
  httpVersionMajor: 1,
  httpVersionMinor: 1,
  headers: {},
});
probe.setHeader('x-probe', '1');
const symbolOf = (isIt) => Object.getOwnPropertySymbols(probe).find(isIt);
/** Symbol of the flag that `drain` is due. */
const kNeedDrain = symbolOf(({ description }) => description === 'kNeedDrain');
/**
 * Symbol of the result of `writableFinished` since Node.js 24; earlier it depends on `finished` and
 * the socket.
 */
const kWritableFinished = symbolOf(({ description }) => description === 'kWritableFinished');
/** Symbol of the headers given to `setHeader`. */
const kOutHeaders = symbolOf((symbol) => probe[symbol]?.['x-probe'] !== undefined);
const ownHeaders = (response) => response[kOutHeaders];

/** `isChecked`: `setHeader` has validated name and value. */
function addLines(lines, name, value, isChecked) {
  if (!isChecked) http.validateHeaderName(String(name));
  if (Array.isArray(value)) {
    // As in node:http, cookies are joined to one line.
    if (value.length < 2 || String(name).toLowerCase() !== 'cookie') {
      for (const line of value) addLine(lines, name, line, isChecked);
      return;
    }
    value = value.join('; ');
  }
  addLine(lines, name, value, isChecked);
}

function addLine(lines, name, value, isChecked) {
  if (!isChecked) http.validateHeaderValue(String(name), value);
  // The engine manages the connection.
  const isHop = name.length === 10 && name.toLowerCase() === 'connection';
  if (isHop && String(value).toLowerCase() !== 'close') return;
  lines.push(String(name), String(value));
}

function flushHeaders() {
  if (!this._header) this._implicitHeader();
  if (this._answer._done || this.finished) return;
  this._headerSent = true;
  this._answer.beginWrite();
}

// ---- interim responses

/** Sends 100 by beginning to read the body. */
function writeContinue(callback) {
  this._sent100 = true;
  this.req.read(0);
  if (callback !== undefined) process.nextTick(callback);
}

function writeProcessing(callback) {
  if (!this._answer._done) native.inform(this._answer._slot, 102, '');
  if (callback !== undefined) process.nextTick(callback);
}

function writeEarlyHints(hints, callback) {
  if (hints === null || typeof hints !== 'object') {
    throw failure(TypeError, 'ERR_INVALID_ARG_TYPE', 'The "hints" argument must be of type object');
  }
  const { link, ...others } = hints;
  if (
    link === undefined ||
    link === null ||
    link.length === 0 ||
    this._answer._done ||
    this._answer._begun
  )
    return;
  this._answer.writeEarlyHints({
    link: Array.isArray(link) ? link.join(', ') : String(link),
    ...others,
  });
  if (callback !== undefined) process.nextTick(callback);
}

// ---- the body

/** Returns a chunk as a string or Uint8Array. */
function bytesOf(chunk, encoding) {
  if (typeof chunk === 'string') {
    return encoding === undefined || encoding === null || /^(utf-?8|buffer)$/i.test(encoding)
      ? chunk
      : Buffer.from(chunk, encoding);
  }
  if (chunk instanceof Uint8Array) return chunk;
  if (chunk === null)
    throw failure(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
  throw failure(
    TypeError,
    'ERR_INVALID_ARG_TYPE',
    `The "chunk" argument must be of type string or an instance of Buffer or Uint8Array. Received ${chunk === undefined ? 'undefined' : `type ${typeof chunk}`}`,
  );
}

/** Passes an error to the callback and emits it, in the next tick. */
function refuse(response, error, callback) {
  process.nextTick(() => {
    callback?.(error);
    if (!response.destroyed) response.emit('error', error);
  });
}

function write(chunk, encoding, callback) {
  if (typeof encoding === 'function') [callback, encoding] = [encoding, undefined];
  const data = bytesOf(chunk, encoding);
  if (this.finished) {
    refuse(this, failure(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end'), callback);
    return false;
  }
  if (this.destroyed) {
    const error = failure(
      Error,
      'ERR_STREAM_DESTROYED',
      'Cannot call write after a stream was destroyed',
    );
    if (callback) process.nextTick(callback, error);
    return false;
  }
  if (!this._header) this._implicitHeader();
  const answer = this._answer;
  if (!this._hasBody || answer._done) {
    if (callback) process.nextTick(callback);
    // If the client has left, `false` stops programs that write in a loop.
    return !answer._done;
  }
  this._headerSent = true;
  if (data.length === 0) {
    answer.beginWrite();
    if (callback) callBack(this, callback);
    return true;
  }
  this.socket?._active();
  const hasRoom = answer.write(data);
  if (!hasRoom) {
    this._isFull = true;
    this._waiting += Buffer.byteLength(data);
    this[kNeedDrain] = true;
    answer.onWritable(() => drained(this));
  }
  if (callback) callBack(this, callback);
  return hasRoom;
}

/** Calls a callback of `write` once the chunk is on its way, after earlier callbacks. */
function callBack(response, callback) {
  if (response._isFull) (response._flushed ??= []).push(callback);
  else process.nextTick(callback);
}

/** Handles the end of back-pressure: the client has taken most of what was written. */
function drained(response) {
  if (!response._isFull) return true;
  response._isFull = response[kNeedDrain] = false;
  response._waiting = 0;
  response.socket?._active();
  const callbacks = response._flushed;
  response._flushed = undefined;
  if (callbacks !== undefined) for (const callback of callbacks) callback();
  if (!response.finished) response.emit('drain');
  return true;
}

function end(chunk, encoding, callback) {
  if (typeof chunk === 'function') [chunk, encoding, callback] = [undefined, undefined, chunk];
  else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
  const hasChunk = chunk !== undefined && chunk !== null;
  const data = hasChunk ? bytesOf(chunk, encoding) : '';
  if (this.finished) {
    if (hasChunk) {
      refuse(this, failure(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end'), callback);
    } else if (typeof callback === 'function') {
      if (!this._isOver) this.once('finish', callback);
      else
        process.nextTick(
          callback,
          failure(
            Error,
            'ERR_STREAM_ALREADY_FINISHED',
            'Cannot call end after a stream was finished',
          ),
        );
    }
    return this;
  }
  if (!this._header) this._implicitHeader();
  if (typeof callback === 'function') this.once('finish', callback);
  this.finished = true;
  this._headerSent = true;
  if (this._answer._done) {
    // The client has left, so 'finish' is not emitted.
    return this;
  }
  // With back-pressure, the end waits until there is capacity, so that 'finish' means that little
  // is left to send.
  if (this._isFull) (this._flushed ??= []).push((error) => error || complete(this, data));
  else complete(this, data);
  return this;
}

function complete(response, data) {
  const answer = response._answer;
  if (answer._done) return;
  keepContent(response.req);
  if (response._lines !== undefined && response._hasBody) {
    answer.beginWrite();
    answer._complete(false);
    native.endWithTrailers(answer._slot, data, response._lines);
  } else if (!response._hasBody && data.length === 0) {
    // For HEAD no length is announced, because that of GET is unknown.
    answer.beginWrite();
    answer.end();
  } else {
    answer.end(data);
  }
  process.nextTick(finish, response);
}

function finish(response) {
  const { socket } = response;
  clearTimeout(socket?._timer);
  response._isOver = true;
  response.emit('prefinish');
  if (kWritableFinished !== undefined) response[kWritableFinished] = true;
  response.emit('finish');
}

/**
 * The first listener of 'finish', as in node:http: delaying the event delays the end of the
 * response.
 */
function finished() {
  if (responseFinish.hasSubscribers) {
    const { req: request, socket } = this;
    responseFinish.publish({ request, response: this, socket, server: socket?.server });
  }
  finishRequest(this.req);
  this.socket = null;
  process.nextTick(onClosedOf, this);
}

const onClosedOf = (response) => response._onClosed();

/** Closes a response that is complete, or whose client has left. */
function onClosed() {
  if (this._closed) return;
  this.destroyed = true;
  this._closed = true;
  const callbacks = this._flushed;
  this._flushed = undefined;
  if (callbacks !== undefined) {
    const error = failure(
      Error,
      'ERR_STREAM_DESTROYED',
      'Cannot call write after a stream was destroyed',
    );
    for (const callback of callbacks) callback(error);
  }
  this.emit('close');
  const { req: request } = this;
  // The rest of the request body is still delivered.
  if (this._answer._readsAfterResponse) request.once('close', () => request.client._end());
  else request.client._end();
}

function addTrailers(headers) {
  const pairs = Array.isArray(headers) ? headers : Object.entries(headers);
  for (const [name, value] of pairs) {
    http.validateHeaderName(String(name));
    http.validateHeaderValue(String(name), value);
    this._lines = `${this._lines ?? ''}${name}: ${value}\n`;
  }
}

module.exports = { makeResponse, failure };
