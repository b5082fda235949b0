'use strict';

// Parses responses that programs write as HTTP/1.1 bytes to the socket of an upgrade: heads and
// chunked bodies. They are parsed as strictly as requests: anything ambiguous is an error.

const { unpadded } = require('../text');

/** Maximum number of bytes and of header lines of a head. */
const HEAD_BYTES = 64 << 10;
const HEAD_LINES = 1000;
/** Maximum size in bytes of a chunk's size line, and of all trailer lines. */
const CHUNK_LINE_BYTES = 4 << 10;

const CR = 13;
const LF = 10;

const STATUS_LINE = /^HTTP\/1\.[01] ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// eslint-disable-next-line no-control-regex
const FORBIDDEN = /[\0-\x08\x0a-\x1f\x7f]/;
/** A chunk size of up to 12 hexadecimal digits, more than any real file needs. */
const SIZE = /^[0-9A-Fa-f]{1,12}$/;
const LENGTH = /^\d{1,15}$/;

function malformed(reason) {
  const error = new Error(
    `invalid HTTP/1.1 response written to the socket of an upgrade: ${reason}`,
  );
  error.code = 'ERR_PRONGHORN_INVALID_RESPONSE';
  return error;
}

/** Assembles lines from chunks, which may split them anywhere. */
class Lines {
  /** `most`: maximum size in bytes of all lines, including their ends. */
  constructor(most, what) {
    this._most = most;
    this._what = what;
    this._size = 0;
    /** The incomplete line. */
    this._begun = '';
  }

  /**
   * Returns the next line of `chunk` from `at` on, without its end, and the offset after it;
   * `undefined` if it is incomplete.
   */
  next(chunk, at) {
    const found = chunk.indexOf(LF, at);
    const end = found === -1 ? chunk.length : found + 1;
    this._size += end - at;
    if (this._size > this._most) throw malformed(`${this._what} has more than ${this._most} bytes`);
    this._begun += chunk.latin1Slice(at, end);
    if (found === -1) return undefined;
    const line = this._begun;
    this._begun = '';
    if (line.charCodeAt(line.length - 2) !== CR)
      throw malformed(`a line of ${this._what} ends without a CR`);
    return { line: line.slice(0, -2), end };
  }

  get isEmpty() {
    return this._begun === '';
  }
}

/** Reads one head. */
class HeadReader {
  constructor() {
    this._lines = new Lines(HEAD_BYTES, 'the head');
    this._status = undefined;
    this._fields = [];
  }

  /** Returns whether nothing was written. */
  get isEmpty() {
    return this._status === undefined && this._lines.isEmpty;
  }

  /** Returns the head and the rest of `chunk`; `undefined` while the head is incomplete. */
  add(chunk) {
    let at = 0;
    for (;;) {
      const next = this._lines.next(chunk, at);
      if (next === undefined) return undefined;
      at = next.end;
      if (this._status === undefined) this._status = statusOf(next.line);
      else if (next.line === '')
        return { head: new Head(this._status, this._fields), rest: chunk.subarray(at) };
      else this._addField(next.line);
    }
  }

  _addField(line) {
    if (this._fields.length >= HEAD_LINES * 2)
      throw malformed(`the head has more than ${HEAD_LINES} field lines`);
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(colon, 0));
    if (!TOKEN.test(name))
      throw malformed(`${quoted(line)} does not begin with a field name and a colon`);
    const value = unpadded(line.slice(colon + 1));
    if (FORBIDDEN.test(value)) throw malformed(`the value of ${name} has a control character`);
    this._fields.push(name.toLowerCase(), value);
  }
}

function statusOf(line) {
  const [, status] = STATUS_LINE.exec(line) ?? [];
  if (status === undefined) {
    throw malformed(
      `invalid status line ${quoted(line)}: write "HTTP/1.1 101 Switching Protocols"`,
    );
  }
  return Number(status);
}

const quoted = (line) => JSON.stringify(line.length > 80 ? `${line.slice(0, 80)}…` : line);

class Head {
  constructor(status, fields) {
    this.status = status;
    /** Names in lower case and values, alternating. */
    this.fields = fields;
  }

  /** Returns the values of all lines with this name. */
  all(name) {
    const values = [];
    for (let index = 0; index < this.fields.length; index += 2) {
      if (this.fields[index] === name) values.push(this.fields[index + 1]);
    }
    return values;
  }

  /** Returns the framing of the body (RFC 9112, section 6.3). */
  content() {
    const lengths = this.all('content-length');
    const codings = this.all('transfer-encoding');
    if (this.status === 204 || this.status === 304) return new FixedLength(0);
    if (codings.length > 0) {
      if (lengths.length > 0)
        throw malformed('both content-length and transfer-encoding are present');
      if (codings.length > 1 || codings[0].toLowerCase() !== 'chunked') {
        throw malformed('transfer-encoding is not chunked alone');
      }
      return new Chunked();
    }
    if (lengths.length === 0) return new UntilClose();
    if (lengths.length > 1 || !LENGTH.test(lengths[0]))
      throw malformed('content-length is not one number');
    return new FixedLength(Number(lengths[0]));
  }
}

// ---- bodies: `add` returns the parts of the body in a chunk, `isComplete` says that the body is
// complete

/** A body that ends with the socket. */
class UntilClose {
  isComplete = false;
  endsWithSocket = true;

  add(chunk) {
    return [chunk];
  }
}

class FixedLength {
  endsWithSocket = false;

  constructor(size) {
    this.size = size;
    this._left = size;
  }

  get isComplete() {
    return this._left === 0;
  }

  add(chunk) {
    const piece = chunk.subarray(0, this._left);
    this._left -= piece.length;
    return piece.length === 0 ? [] : [piece];
  }
}

/** A chunked body (RFC 9112, section 7.1). Extensions and trailers are not passed on. */
class Chunked {
  endsWithSocket = false;
  isComplete = false;

  constructor() {
    this._lines = undefined;
    this._awaits = 'size';
    this._left = 0;
  }

  add(chunk) {
    const pieces = [];
    let at = 0;
    while (at < chunk.length && !this.isComplete) {
      if (this._awaits === 'content') {
        const piece = chunk.subarray(at, at + this._left);
        pieces.push(piece);
        at += piece.length;
        this._left -= piece.length;
        if (this._left === 0) this._awaits = 'end';
      } else {
        this._lines ??= new Lines(CHUNK_LINE_BYTES, 'a chunk');
        const next = this._lines.next(chunk, at);
        if (next === undefined) break;
        at = next.end;
        this._onLine(next.line);
      }
    }
    return pieces;
  }

  _onLine(line) {
    if (this._awaits === 'trailers') {
      this.isComplete = line === '';
      return;
    }
    this._lines = undefined;
    if (this._awaits === 'end') {
      if (line !== '') throw malformed('a chunk is longer than its size');
      this._awaits = 'size';
      return;
    }
    const [size] = line.split(';', 1);
    if (!SIZE.test(size.trimEnd())) throw malformed(`invalid chunk size ${quoted(line)}`);
    this._left = Number.parseInt(size, 16);
    this._awaits = this._left === 0 ? 'trailers' : 'content';
  }
}

module.exports = { HeadReader, malformed, quoted, HEAD_BYTES, HEAD_LINES };
