'use strict';

const { recognized } = require('./text');

const MAX_PART_HEADERS = 10;

/** Parses a `multipart/form-data` body (RFC 7578). Returns `undefined` if it is malformed. */
function getParts(body, contentType) {
  const type = String(contentType);
  const boundary = /^multipart\/[^;]*;(?:.*;)?\s*boundary=(?:"([^"]+)"|([^\s;]+))/i.exec(type);
  if (boundary === null) return undefined;
  const known = recognized('getParts()', body);
  const bytes =
    typeof known === 'string'
      ? Buffer.from(known)
      : Buffer.from(known.buffer, known.byteOffset, known.byteLength);
  const delimiter = Buffer.from(`\r\n--${boundary[1] ?? boundary[2]}`);
  // The first delimiter may have no line break before it.
  const first = delimiter.subarray(2);
  let at = bytes.indexOf(first);
  if (at !== 0 && (at < 2 || bytes[at - 1] !== 10))
    at = bytes.indexOf(delimiter) === -1 ? -1 : bytes.indexOf(delimiter) + 2;
  if (at === -1) return undefined;
  at += first.length;
  const parts = [];
  for (;;) {
    if (bytes[at] === 45 && bytes[at + 1] === 45) return parts;
    const begin = bytes.indexOf('\r\n', at);
    const end = begin === -1 ? -1 : bytes.indexOf(delimiter, begin);
    if (end === -1) return undefined;
    const part = parsePart(bytes.subarray(begin + 2, end));
    if (part === undefined) return undefined;
    if (part.name !== undefined) parts.push(part);
    at = end + delimiter.length;
  }
}

function parsePart(bytes) {
  // A part without headers begins with the empty line.
  const isBare = bytes[0] === 13 && bytes[1] === 10;
  const end = isBare ? 0 : bytes.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const lines = bytes.subarray(0, end).toString('utf8').split('\r\n').filter(Boolean);
  if (lines.length > MAX_PART_HEADERS) return undefined;
  const part = { data: copy(bytes.subarray(end + (isBare ? 2 : 4))), name: undefined };
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (name === 'content-type') part.type = value;
    if (name === 'content-disposition') {
      part.name = parameter(value, 'name');
      const filename = parameter(value, 'filename');
      if (filename !== undefined) part.filename = filename;
    }
  }
  return part;
}

function parameter(value, name) {
  const found = new RegExp(`;\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^;\\s]+))`, 'i').exec(value);
  if (found === null) return undefined;
  return found[2] ?? found[1].replaceAll('%22', '"').replace(/\\(["\\])/g, '$1');
}

function copy(bytes) {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
}

module.exports = { getParts };
