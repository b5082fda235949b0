'use strict';

// Requests, from their arrival until they are answered. The native counterpart is
// crates/node/src/exchange.rs.

const native = require('./native');
const operations = require('./operations');
const { unanswered } = require('./errors');
const { HttpRequest } = require('./request');
const {
  HttpResponse,
  live,
  fail,
  onBodyLost,
  runAll,
  guard,
  deliverBody,
  deliverEmptyBody,
} = require('./response');

/**
 * Routes with JavaScript handlers of listening applications of this thread, by number. Others may
 * be garbage-collected.
 */
const routes = [];
/** Numbers of routes whose application was garbage-collected. */
const freeNumbers = [];
let lastNumber = 0;

/** Returns a number for a new route. */
const routeNumber = () => freeNumbers.pop() ?? lastNumber++;

/** Handles the event of a new request. */
function request(slot, route, hasContent) {
  const res = new HttpResponse(slot, route, hasContent);
  res.runInAsyncScope(handle, undefined, res);
}

/** Runs the handler of a request, and the next matching ones as long as they yield. */
function handle(res) {
  const { _slot: slot, _route: route } = res;
  const req = new HttpRequest(slot, route);
  try {
    let result = route.handler(res, req);
    while (req._yield && !res._done) {
      const next = native.nextHandler(slot);
      req._yield = false;
      if (next === undefined) {
        res.writeStatus('404').end();
        break;
      }
      if (next < 0) {
        // A DeclarativeResponse has responded.
        res._finish();
        break;
      }
      res._route = req._route = routes[next];
      result = req._route.handler(res, req);
    }
    if (result !== undefined && result !== null && typeof result.then === 'function') {
      result.then(undefined, (error) => fail(res, error));
    }
  } catch (error) {
    fail(res, error);
  }
  req._slot = -1;
  if (!res._done || res._readsAfterResponse) keep(res);
}

/** Keeps a request whose response, or whose body, comes later. */
function keep(res) {
  const later = res._later;
  if (!res._done && (later === undefined || later.onAborted.length === 0)) {
    fail(res, unanswered(`${res._route.method} ${res._route.pattern}`));
    return;
  }
  later.returned = true;
  live.set(res._slot, res);
  operations.watch(res._slot);
  if (later.onData !== undefined && !res._hasContent) deliverEmptyBody(res);
}

function data(slot, isLast) {
  const res = live.get(slot);
  if (res === undefined) return;
  const later = res._later;
  later.readable = true;
  later.last = isLast;
  if (!later.paused) guard(res, deliverBody);
}

function aborted(slot) {
  const res = live.get(slot);
  if (res === undefined) return;
  // The response is complete: only the body is lost, and the request was not aborted.
  if (res._readsAfterResponse) return onBodyLost(res);
  res._finish();
  operations.forget(slot);
  runAll(res, res._later.onAborted);
}

function writable(slot) {
  const res = live.get(slot);
  if (res === undefined || res._done || res._later.onWritable === undefined) return;
  guard(res, () => res._later.onWritable(native.offset(slot)));
}

module.exports = { routes, routeNumber, freeNumbers, request, data, aborted, writable };
