'use strict';

const { noText } = require('./errors');

/** A string as it is; what holds bytes as a Uint8Array of them. */
function recognized(call, value) {
  if (typeof value === 'string' || value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value);
  throw noText(call, value);
}

function recognizedText(call, value) {
  const known = recognized(call, value);
  return typeof known === 'string'
    ? known
    : Buffer.from(known.buffer, known.byteOffset, known.byteLength).toString('utf8');
}

module.exports = { recognized, recognizedText };
