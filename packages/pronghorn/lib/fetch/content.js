'use strict';

// The request body, read on demand.

/** Returns the error of a request's signal, streams and promises when the client has left. */
const clientLeft = () => new DOMException('the client has left', 'AbortError');

/** Reads the body that `res` receives, once: as a whole or as a stream. */
class Content {
  constructor(res) {
    this._res = res;
    this._fail = undefined;
    this._error = undefined;
    this._stream = undefined;
    this.isUsed = false;
  }

  /**
   * Ends reading when the client leaves, or after the response. A body that is being read is still
   * delivered.
   */
  end(error) {
    if (this._res._readsAfterResponse) {
      // A reader may continue after the response.
      if (this._stream === undefined || this._stream.locked) return;
      this._res._stopReading();
    }
    this._error ??= error;
    this._fail?.(error);
  }

  _begin(fail) {
    if (this._error === undefined && this._res._done) {
      this._error = new TypeError('the body of this request is gone: its response has been sent');
    }
    this._fail = fail;
    if (this._error !== undefined) fail(this._error);
    return this._error === undefined;
  }

  /** Reads the whole body as a Buffer. */
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

  /** Returns a byte stream that takes no more from the client than is read of it. */
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
          if (!res._done || res._readsAfterResponse) res.resume();
        },
        // The rest stays with the client until the response is sent.
        cancel: () => {
          this._fail = undefined;
        },
      },
      { highWaterMark: 0 },
    );
  }
}

module.exports = { Content, clientLeft };
