'use strict';

// Errors about wrong use. Each says what to do.

/** @param {string} call the method that was called, such as `res.end()` */
function usedAfterEnd(call) {
  return new Error(
    `${call} was called on a response that has ended: a response can be used until end(), a tryEnd() that completes it, close() ` +
      'or its abort; set a flag in res.onAborted(() => { aborted = true; }) and check it before each use',
  );
}

function usedAfterHandler(call) {
  return new Error(
    `${call} was called after its handler had returned: a request can be read only while its handler runs; ` +
      'read what you need before the first await',
  );
}

function usedAfterBegin(call) {
  return new Error(
    `${call} was called after the body had begun: write the status and headers before write(), tryEnd() and beginWrite()`,
  );
}

function unanswered(route) {
  return new Error(
    `the handler of ${route} returned without a response and without res.onAborted(): the client may leave before you respond; ` +
      'call res.onAborted(() => { aborted = true; }) before the first await, and respond only while it is not aborted',
  );
}

function noText(call, value) {
  const kind = value === null ? 'null' : typeof value;
  return new TypeError(
    `${call} takes a string, an ArrayBuffer or a typed array, not ${kind}: write String(value) or JSON.stringify(value)`,
  );
}

function noFunction(call, value) {
  return new TypeError(`${call} takes a function, not ${value === null ? 'null' : typeof value}`);
}

/** Writes to standard error. A failure to do so is ignored. */
function logError(...words) {
  try {
    console.error(...words);
  } catch {
    // Must not affect the events that follow.
  }
}

const warned = new Set();

/** Emits a warning once per thread. */
function warnOnce(text) {
  if (warned.has(text)) return;
  warned.add(text);
  process.emitWarning(text, 'PronghornWarning');
}

/** Returns the word of `known` that is most similar to `word`, if any is. */
function nearest(word, known) {
  let best;
  let least = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(
      word.toLowerCase().replaceAll('_', ''),
      candidate.toLowerCase().replaceAll('_', ''),
    );
    const isPart = candidate.toLowerCase().startsWith(word.toLowerCase()) ? distance / 4 : distance;
    if (isPart < least) [best, least] = [candidate, isPart];
  }
  return best;
}

function editDistance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      next[j] = Math.min(
        next[j - 1] + 1,
        row[j] + 1,
        row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1),
      );
    }
    row = next;
  }
  return row[other.length];
}

module.exports = {
  usedAfterEnd,
  usedAfterHandler,
  usedAfterBegin,
  unanswered,
  noText,
  noFunction,
  logError,
  warnOnce,
  nearest,
};
