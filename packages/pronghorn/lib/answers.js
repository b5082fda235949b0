'use strict';

// What is answered goes into memory that the native part reads, so that a batch of answers costs no call.
// The other side is crates/node/src/ops.rs.

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
/** Content and values of up to so many characters may be kept on the other side. */
const KEPT_CHARACTERS = 1024;
/** Up to here a loop is quicker than a call that copies. */
const SHORT = 48;

// The first number says how many there are, itself included; the other side sets it to 1 when it has read them.
numbers[0] = 1;
/** Where the next bytes go. */
let at = 0;
/** While it is more than 0 somebody will flush. */
let held = 0;

/** Where the next numbers go, once there is room for so many and for so many bytes. */
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

/** What `action` answers leaves together. */
function hold() {
  held++;
}

function release() {
  if (--held === 0) native.flush();
}

/** As `release`, where the other side reads when this one returns. */
function releaseToCaller() {
  held--;
}

/** Copies text and returns its size in UTF-8. There has to be room for three bytes a character. */
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

/** Whether the other side is to keep short text for `owner`, a route or a name: it comes the second time in a row. */
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

/** `reported`: the length to announce, or `undefined`. */
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

/** The name of a field that the other side knows by a number. */
class Name {
  constructor(number) {
    this.number = number;
    /** The value that it had last, and the one that the other side keeps. */
    this.last = undefined;
    this.kept = undefined;
  }
}

/** Few are written, each of them often. */
const names = new Map();

/** `undefined` where there are too many. Throws for what is no name. */
function learn(text) {
  const number = native.fieldName(text);
  if (number === undefined) return undefined;
  const name = new Name(number);
  names.set(text, name);
  return name;
}

// All but visible characters, spaces, tabs, and what is not ASCII.
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
      `The value of ${name} has characters that no header may have (line breaks, zeros): ${JSON.stringify(value)}`,
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

/** Takes back all fields. */
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
  /** The handler has returned: look whether the client leaves. */
  watch: (slot) => simple(WATCH, slot),
  /** The client has left, and everybody knows. */
  forget: (slot) => simple(RELEASE, slot),
  abort: (slot) => simple(ABORT, slot),
  /** The response will be complete, and the request's content still read. */
  readOn: (slot) => simple(READ_ON, slot),
};
