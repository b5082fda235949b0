'use strict';

// Responses are encoded into memory shared with the addon, so that a batch of responses costs no
// call. crates/node/src/ops.rs reads it.

const native = require('./native');
const { unpadded } = require('./text');

const END = 1;
const END_AS_BEFORE = 2;
const STATUS = 3;
const FIELD = 4;
const WATCH = 5;
const RELEASE = 6;
const ABORT = 7;
const END_WITHOUT_CONTENT = 8;
const FIELD_AS_BEFORE = 9;
const READ_ON = 10;
const CLEAR = 11;

const CLOSE = 1;
const KEEP = 2;

const numbers = new Int32Array(native.answers);
const bytes = Buffer.from(native.bytes);
/** Maximum length in characters of bodies and header values that the addon keeps for repetition. */
const KEPT_CHARACTERS = 1024;
/** Length up to which a loop is faster than a native copy. */
const SHORT = 48;

// The first number is the count of numbers, itself included. The addon sets it to 1 when it has
// read them.
numbers[0] = 1;
/** Offset of the next bytes. */
let at = 0;
/** Depth of `hold` calls. While it is more than 0, `release` flushes. */
let held = 0;

/**
 * Returns the index of the next number, after flushing if `count` numbers or `size` bytes do not
 * fit.
 */
function room(count, size) {
  let top = numbers[0];
  if (top === 1) at = 0;
  if (top + count > numbers.length || at + size > bytes.length) {
    native.flush();
    top = 1;
    at = 0;
  }
  return top;
}

function settle() {
  if (held === 0) native.flush();
}

/** Begins a batch: operations are flushed by the matching `release`. */
function hold() {
  held++;
}

function release() {
  if (--held === 0) native.flush();
}

/** Ends a batch without a flush: the addon reads the memory when this call returns. */
function releaseToCaller() {
  held--;
}

/** Copies a string and returns its size in UTF-8. Three bytes per character have to fit. */
function writeText(text) {
  const length = text.length;
  if (length <= SHORT) {
    let index = 0;
    for (; index < length; index++) {
      const code = text.charCodeAt(index);
      if (code > 127) break;
      bytes[at + index] = code;
    }
    if (index === length) {
      at += length;
      return length;
    }
  }
  const size = bytes.utf8Write(text, at);
  at += size;
  return size;
}

/**
 * Returns whether the addon should keep a short string for `owner`, a route or a header name: the
 * string occurred twice in a row.
 */
function isWorthKeeping(owner, text) {
  const isAgain = owner.last === text;
  if (isAgain) owner.kept = text;
  owner.last = text;
  return isAgain;
}

/** `content`: a string or a Uint8Array. */
function end(slot, route, content, close) {
  if (typeof content === 'string') {
    const length = content.length;
    let flags = close ? CLOSE : 0;
    if (length <= KEPT_CHARACTERS && !close) {
      if (route.kept === content) {
        const top = room(3, 0);
        numbers[top] = END_AS_BEFORE;
        numbers[top + 1] = slot;
        numbers[top + 2] = route.number;
        numbers[0] = top + 3;
        settle();
        return;
      }
      if (isWorthKeeping(route, content)) flags |= KEEP;
    }
    if (length * 3 > bytes.length) {
      native.endWith(slot, content, close);
      return;
    }
    const top = room(5, length * 3);
    numbers[top] = END;
    numbers[top + 1] = slot;
    numbers[top + 2] = flags;
    numbers[top + 3] = route.number;
    numbers[top + 4] = writeText(content);
    numbers[0] = top + 5;
  } else {
    const size = content.byteLength;
    if (size > bytes.length >> 2) {
      native.endWith(slot, content, close);
      return;
    }
    const top = room(5, size);
    numbers[top] = END;
    numbers[top + 1] = slot;
    numbers[top + 2] = close ? CLOSE : 0;
    numbers[top + 3] = 0;
    numbers[top + 4] = size;
    bytes.set(content, at);
    at += size;
    numbers[0] = top + 5;
  }
  settle();
}

/** `reported`: the `content-length` to announce, or `undefined`. */
function endWithoutContent(slot, reported, close) {
  const top = room(5, 0);
  numbers[top] = END_WITHOUT_CONTENT;
  numbers[top + 1] = slot;
  numbers[top + 2] = close ? CLOSE : 0;
  numbers[top + 3] = reported === undefined ? 0 : reported % 2 ** 32;
  numbers[top + 4] = reported === undefined ? -1 : Math.floor(reported / 2 ** 32);
  numbers[0] = top + 5;
  settle();
}

function status(slot, code) {
  const top = room(3, 0);
  numbers[top] = STATUS;
  numbers[top + 1] = slot;
  numbers[top + 2] = code;
  numbers[0] = top + 3;
}

/** A header name that the addon knows by a number. */
class Name {
  constructor(number) {
    this.number = number;
    /** The last value, and the value that the addon keeps. */
    this.last = undefined;
    this.kept = undefined;
  }
}

/** Known header names. Programs use few names, each of them often. */
const names = new Map();

/**
 * Registers a header name. Returns `undefined` if there are too many, and throws if it is invalid.
 */
function learn(text) {
  const number = native.fieldName(text);
  if (number === undefined) return undefined;
  const name = new Name(number);
  names.set(text, name);
  return name;
}

// Control characters other than tab.
// eslint-disable-next-line no-control-regex
const forbiddenInValues = /[\0-\x08\x0a-\x1f\x7f]/;

const padded = /^[ \t]|[ \t]$/;

function field(slot, name, given) {
  let value = given;
  const known = names.get(name) ?? learn(name);
  if (known !== undefined && known.kept === value) {
    const top = room(3, 0);
    numbers[top] = FIELD_AS_BEFORE;
    numbers[top + 1] = slot;
    numbers[top + 2] = known.number;
    numbers[0] = top + 3;
    return;
  }
  if (padded.test(value)) value = unpadded(value);
  if (forbiddenInValues.test(value)) {
    throw new TypeError(
      `invalid value of header ${name}: ${JSON.stringify(value)} contains a control character, such as a line break or a zero`,
    );
  }
  if (known === undefined || value.length * 3 > bytes.length) {
    native.writeField(slot, name, value);
    return;
  }
  const top = room(5, value.length * 3);
  numbers[top] = FIELD;
  numbers[top + 1] = slot;
  numbers[top + 2] = known.number;
  numbers[top + 3] = value.length <= KEPT_CHARACTERS && isWorthKeeping(known, value) ? KEEP : 0;
  numbers[top + 4] = writeText(value);
  numbers[0] = top + 5;
}

function simple(operation, slot) {
  const top = room(2, 0);
  numbers[top] = operation;
  numbers[top + 1] = slot;
  numbers[0] = top + 2;
  settle();
}

/** Removes all headers of the response. */
function clear(slot) {
  const top = room(2, 0);
  numbers[top] = CLEAR;
  numbers[top + 1] = slot;
  numbers[0] = top + 2;
}

module.exports = {
  clear,
  hold,
  release,
  releaseToCaller,
  end,
  endWithoutContent,
  status,
  field,
  /** Called when the handler has returned: watch for the client leaving. */
  watch: (slot) => simple(WATCH, slot),
  /** Releases an exchange whose client has left. */
  forget: (slot) => simple(RELEASE, slot),
  abort: (slot) => simple(ABORT, slot),
  /** Keeps the request body readable after the response is complete. */
  keepReading: (slot) => simple(READ_ON, slot),
};
