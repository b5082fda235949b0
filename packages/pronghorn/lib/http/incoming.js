'use strict';

// Requests are IncomingMessages of node:http. Methods are set as own properties, because frameworks
// such as Express replace the prototype.

const { trailersOf } = require('../head');

/** Version properties of IncomingMessage by HTTP version. */
const VERSIONS = {
  1: [1, 1, '1.1'],
  2: [2, 0, '2.0'],
  3: [3, 0, '3.0'],
};

function makeRequest(Base, socket, hasContent) {
  const message = new Base(socket);
  const head = socket._head;
  const [major, minor, version] = VERSIONS[head.version];
  message.httpVersionMajor = major;
  message.httpVersionMinor = minor;
  message.httpVersion = version;
  message.method = head.method;
  message.url = head.target;
  const lines = head.lines();
  // HTTP/2 and HTTP/3 need no header for it, but body parsers look for one to know that there is a
  // body.
  if (hasContent && major > 1 && head.first('content-length') === undefined)
    lines.push('transfer-encoding', 'chunked');
  message._addHeaderLines(lines, lines.length);
  message._read = read;
  message._destroy = destroy;
  message._isReading = false;
  socket._request = message;
  if (!hasContent) {
    message.complete = true;
    message.push(null);
  }
  return message;
}

function read() {
  if (!this._consumed) {
    this._readableState.readingMore = false;
    this._consumed = true;
  }
  const { _res: res } = this.client;
  if ((res._done && !res._readsAfterResponse) || this.complete) return;
  if (this._isReading) {
    res.resume();
    return;
  }
  begin(this, res);
  if (res._later?.paused) res.resume();
}

/** Begins to read the body. Reading continues when the response is complete. */
function begin(message, res) {
  message._isReading = true;
  const later = res._getLater();
  later.outlastsPause = true;
  later.onLost.push(() => message.destroy(reset('aborted')));
  res.onData((chunk, isLast) => receive(message, res, chunk, isLast));
}

function receive(message, res, chunk, isLast) {
  if (message.destroyed) {
    if (!isLast) res.pause();
    return;
  }
  if (!res._done) message.client._active();
  const wantsMore = chunk.byteLength === 0 || message.push(Buffer.from(chunk));
  if (isLast) {
    const trailers = trailersOf(res._slot);
    message.complete = true;
    message._addHeaderLines(trailers, trailers.length);
    message.push(null);
  } else if (!wantsMore) {
    res.pause();
  }
}

/** Destroys a request. As in node:http, that ends an incomplete exchange. */
function destroy(error, callback) {
  if (!this.readableEnded || !this.complete) {
    this.aborted = true;
    this.emit('aborted');
  }
  const { client } = this;
  // `for await` removes the socket before it destroys a request that it has not read to its end.
  // The response is still to come.
  const isLetGo = this.socket === null;
  if (client._res._readsAfterResponse) client._res._stopReading();
  else if (this.aborted && !isLetGo && !client.destroyed && !client._res._done)
    client.destroy(error);
  process.nextTick(() => (error && this.listenerCount('error') > 0 ? callback(error) : callback()));
}

/** Keeps the body for readers that begin between the end of the response and `finishRequest`. */
function keepContent(message) {
  const { _res: res } = message.client;
  if (message.complete || message._isReading || message.destroyed) return;
  res.pause();
  begin(message, res);
}

const isWanted = (message) =>
  message._consumed || message.readableFlowing === true || message.listenerCount('readable') > 0;

/** Handles a complete response: discards a body that is not being read. */
function finishRequest(message) {
  const { _res: res } = message.client;
  if (message.complete) {
    if (!message._consumed && !message.readableEnded) message._dump();
    return;
  }
  if (!isWanted(message)) {
    if (res._readsAfterResponse) res._stopReading();
    message.complete = true;
    message.removeAllListeners('data');
    message.push(null);
    message.resume();
    return;
  }
  if (!message.destroyed && !res._readsAfterResponse) message.destroy(reset('aborted'));
}

function reset(text) {
  const error = new Error(text);
  error.code = 'ECONNRESET';
  return error;
}

module.exports = { makeRequest, keepContent, finishRequest, reset };
