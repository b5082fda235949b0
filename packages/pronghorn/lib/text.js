'use strict';

const { noText } = require('./errors');

/** Returns a copy of shared memory, which another thread may write while it is read. */
function own(bytes) {
  return bytes.buffer instanceof SharedArrayBuffer ? new Uint8Array(bytes) : bytes;
}

/** Returns strings unchanged, and the bytes of buffers as a Uint8Array. */
function recognized(call, value) {
  if (typeof value === 'string') return value;
  if (value instanceof Uint8Array) return own(value);
  if (ArrayBuffer.isView(value))
    return own(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer)
    return own(new Uint8Array(value));
  throw noText(call, value);
}

function recognizedText(call, value) {
  const known = recognized(call, value);
  return typeof known === 'string'
    ? known
    : Buffer.from(known.buffer, known.byteOffset, known.byteLength).toString('utf8');
}

/** Returns a string as an ArrayBuffer of UTF-8, the form that programs get. */
function textBuffer(text) {
  return new TextEncoder().encode(text).buffer;
}

const isSpace = (text, index) => text[index] === ' ' || text[index] === '\t';

/** Returns a header value without the whitespace around it, which HTTP/2 and HTTP/3 forbid. */
function unpadded(value) {
  let [begin, end] = [0, value.length];
  while (begin < end && isSpace(value, begin)) begin++;
  while (end > begin && isSpace(value, end - 1)) end--;
  return value.slice(begin, end);
}

module.exports = { recognized, recognizedText, textBuffer, unpadded };
