'use strict';

// Errors of use, each with what to do about it.

/** @param {string} call what was called, such as `res.end()` */
function usedAfterEnd(call) {
  return new Error(
    `${call} was called on a response that has ended. A response can be used until end(), a tryEnd() that completes it, close(), ` +
      'or its abort: set a flag in res.onAborted(() => { aborted = true; }) and look at it before you write.',
  );
}

function usedAfterHandler(call) {
  return new Error(
    `${call} was called after its handler had returned. A request can be read only while its handler runs: ` +
      'read what you need of it before the first await.',
  );
}

function usedAfterBegin(call) {
  return new Error(
    `${call} was called after the content had begun. Write the status and the headers before write(), tryEnd() and beginWrite().`,
  );
}

function unanswered(route) {
  return new Error(
    `The handler of ${route} returned without a response and without res.onAborted(). The client may leave before you answer: ` +
      'before the first await, write res.onAborted(() => { aborted = true; }), and answer only if it has not happened.',
  );
}

function noText(call, value) {
  const kind = value === null ? 'null' : typeof value;
  return new TypeError(
    `${call} takes a string, an ArrayBuffer or a typed array, not ${kind}: write String(value) or JSON.stringify(value).`,
  );
}

function noFunction(call, value) {
  return new TypeError(`${call} takes a function, not ${value === null ? 'null' : typeof value}.`);
}

/** Tells the operator. Nothing comes of it where even that fails. */
function complain(...words) {
  try {
    console.error(...words);
  } catch {
    // Nobody is left to tell, and those who are served next have nothing to do with it.
  }
}

const warned = new Set();

/** Tells the program of what it may not expect, once a thread. */
function warnOnce(text) {
  if (warned.has(text)) return;
  warned.add(text);
  process.emitWarning(text, 'PronghornWarning');
}

/** The word of `known` that is most like `word`, if one is. */
function nearest(word, known) {
  let best;
  let least = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase().replaceAll('_', ''), candidate.toLowerCase().replaceAll('_', ''));
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
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1));
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
  complain,
  warnOnce,
  nearest,
};
