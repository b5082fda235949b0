'use strict';

// Sends a Response.

const operations = require('../operations');
const { writeField } = require('../head');
const { clientLeft } = require('./content');
const { Response } = require('./response');

const TEXT = 'text/plain;charset=UTF-8';

/** Sends `response`. Returns a promise if its body is a stream. */
function send(exchange, response) {
  const { res } = exchange;
  if (!(response instanceof Response)) {
    throw new TypeError(
      `the fetch handler returned ${response === null ? 'null' : typeof response} and no Response: return new Response('…')`,
    );
  }
  // The client has left.
  if (res._done) return discard(response);
  const { status, lines, body, needsType } =
    typeof response._toNodeResponse === 'function'
      ? partsOfFast(response)
      : Response.parts(response);
  if (status !== 200) {
    if (status < 200)
      throw new TypeError(`invalid status ${status} of a response: use one from 200 to 599`);
    operations.status(res._slot, status);
  }
  if (lines !== undefined) {
    for (let index = 0; index < lines.length; index += 2)
      writeField(res._slot, lines[index], lines[index + 1]);
  }
  if (needsType) operations.field(res._slot, 'content-type', TEXT);
  if (body instanceof ReadableStream) return sendStream(exchange, body);
  if (typeof body?.pipe === 'function')
    return sendStream(exchange, require('node:stream').Readable.toWeb(body));
  end(exchange, body);
  return undefined;
}

function end(exchange, body) {
  const { res } = exchange;
  if (body === null) endWithNothing(exchange);
  else res.end(body instanceof ArrayBuffer ? new Uint8Array(body) : body);
  exchange.end(false);
}

/**
 * Ends a response without a body. For HEAD no length is announced, because that of GET is unknown.
 */
function endWithNothing({ res, head }) {
  if (head.method === 'HEAD') res.beginWrite();
  res.end();
}

/** Returns the parts of a FastResponse of srvx, which H3 creates. */
function partsOfFast(response) {
  const { status, headers, body } = response._toNodeResponse();
  return { status, lines: headers.map(String), body: body ?? null, needsType: false };
}

/** Cancels the body of a response whose client has left. */
function discard(response) {
  const { body } = response;
  if (body !== null && !body.locked) body.cancel(clientLeft()).catch(() => {});
}

async function sendStream(exchange, stream) {
  const reader = stream.getReader();
  try {
    await sendPieces(exchange, reader);
  } catch (error) {
    // The source of the stream gets the error as well.
    reader.cancel(error).catch(() => {});
    throw error;
  }
}

async function sendPieces(exchange, reader) {
  const { res, head } = exchange;
  if (head.method === 'HEAD') {
    reader.cancel().catch(() => {});
    return end(exchange, null);
  }
  let goOn;
  exchange.onEnd = (aborted) => {
    if (!aborted) return;
    reader.cancel(clientLeft()).catch(() => {});
    goOn?.();
  };
  res.onWritable(() => {
    goOn?.();
    return true;
  });
  let next = reader.read();
  // A body that is available as one chunk is sent as a whole, with its length.
  let settled = await within(next);
  if (settled !== undefined && !settled.done && settled.value.byteLength > 0) {
    const following = reader.read();
    const after = await within(following);
    if (res._done) return;
    if (after?.done === true) return end(exchange, settled.value);
    write(res, settled.value);
    next = following;
  } else if (settled === undefined && !res._done) {
    res.beginWrite();
  }
  for (;;) {
    const { done, value } = await next;
    if (res._done) return;
    if (done) return end(exchange, new Uint8Array(0));
    if (!write(res, value)) {
      await new Promise((resolve) => (goOn = resolve));
      goOn = undefined;
      if (res._done) return;
    }
    next = reader.read();
  }
}

function write(res, value) {
  if (!(value instanceof Uint8Array))
    throw new TypeError('the stream of a response has to produce Uint8Arrays');
  return value.byteLength === 0 ? true : res.write(value);
}

/** Returns the value of a promise if it is fulfilled within three microtasks. */
async function within(promise) {
  let settled;
  promise.then(
    (value) => (settled = value),
    () => {},
  );
  for (let turn = 0; turn < 3 && settled === undefined; turn++) await undefined;
  return settled;
}

module.exports = { send };
