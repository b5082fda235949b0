'use strict';

// The content of a request, as much of it and as soon as somebody asks for it.

/** What signals, streams and promises of a request end with when its client has left. */
const clientLeft = () => new DOMException('The client has left.', 'AbortError');

/** Reads what `res` receives: all of it at once, or as a stream. Only one of them, and only once. */
class Content {
  constructor(res) {
    this._res = res;
    this._fail = undefined;
    this._error = undefined;
    this._stream = undefined;
    this.isUsed = false;
  }

  /** The client has left, or the response went out before all was read. What somebody reads goes on coming. */
  end(error) {
    if (this._res._readsOn) {
      // Somebody reads of it, and need not have waited for that before the answer.
      if (this._stream === undefined || this._stream.locked) return;
      this._res._stopReading();
    }
    this._error ??= error;
    this._fail?.(error);
  }

  _begin(fail) {
    if (this._error === undefined && this._res._done) {
      this._error = new TypeError('The content of this request is gone: its response has been sent.');
    }
    this._fail = fail;
    if (this._error !== undefined) fail(this._error);
    return this._error === undefined;
  }

  /** All of it as a Buffer. */
  collect() {
    this.isUsed = true;
    return new Promise((resolve, reject) => {
      if (!this._begin(reject)) return;
      const chunks = [];
      this._res._getLater().onLost.push(() => reject(clientLeft()));
      this._res.onData((chunk, isLast) => {
        if (chunk.byteLength > 0) chunks.push(Buffer.from(chunk));
        if (!isLast) return;
        this._fail = undefined;
        resolve(chunks.length === 1 ? chunks[0] : Buffer.concat(chunks));
      });
    });
  }

  /** A stream of bytes that takes no more from the client than is read of it. */
  stream() {
    return (this._stream ??= this._makeStream());
  }

  _makeStream() {
    const res = this._res;
    return new ReadableStream(
      {
        type: 'bytes',
        start: (controller) => {
          if (!this._begin((error) => controller.error(error))) return;
          const later = res._getLater();
          later.outlastsPause = true;
          later.onLost.push(() => this._fail?.(clientLeft()));
          res.pause();
          res.onData((chunk, isLast) => {
            if (this._fail === undefined) return;
            if (chunk.byteLength > 0) controller.enqueue(new Uint8Array(chunk));
            if (!isLast) return res.pause();
            this._fail = undefined;
            controller.close();
            controller.byobRequest?.respond(0);
          });
        },
        pull: () => {
          if (!res._done || res._readsOn) res.resume();
        },
        // What is not wanted stays with the client until the response is sent.
        cancel: () => {
          this._fail = undefined;
        },
      },
      { highWaterMark: 0 },
    );
  }
}

module.exports = { Content, clientLeft };
