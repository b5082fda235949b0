'use strict';

const { recognized } = require('./text');

// Operations, as crates/node/src/declarative.rs reads them. Each is followed by its operands, with
// a length of one or two bytes before each operand.
const END = 0;
const HEADER = 1;
const BODY = 2;
const QUERY = 3;
const HEADER_VALUE = 4;
const TEXT = 5;
const PARAMETER = 6;

/**
 * Builds a response that is computed without JavaScript. The result of `end` is the route's
 * handler.
 */
class DeclarativeResponse {
  constructor() {
    this._code = [];
  }

  _add(call, operation, lengthBytes, ...texts) {
    this._code.push(Buffer.of(operation));
    for (const text of texts) {
      const bytes = Buffer.from(recognized(`DeclarativeResponse.${call}()`, text));
      if (bytes.length >= 256 ** lengthBytes) {
        throw new RangeError(
          `DeclarativeResponse.${call}() takes less than ${256 ** lengthBytes} bytes, not ${bytes.length}`,
        );
      }
      const length = Buffer.alloc(lengthBytes);
      length.writeUIntLE(bytes.length, 0, lengthBytes);
      this._code.push(length, bytes);
    }
    return this;
  }

  writeHeader(name, value) {
    return this._add('writeHeader', HEADER, 1, name, value);
  }

  writeBody() {
    return this._add('writeBody', BODY, 1);
  }

  writeQueryValue(key) {
    return this._add('writeQueryValue', QUERY, 1, key);
  }

  writeHeaderValue(name) {
    return this._add('writeHeaderValue', HEADER_VALUE, 1, name);
  }

  writeParameterValue(key) {
    return this._add('writeParameterValue', PARAMETER, 1, key);
  }

  write(text) {
    return this._add('write', TEXT, 2, text);
  }

  end(text = '') {
    this._add('end', END, 2, text);
    const code = Buffer.concat(this._code);
    return code.buffer.slice(code.byteOffset, code.byteOffset + code.length);
  }
}

module.exports = { DeclarativeResponse };
