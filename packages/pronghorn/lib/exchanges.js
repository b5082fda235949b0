'use strict';

// Requests as they come, and what becomes of them until they are answered. The other side is crates/node/src/exchange.rs.

const native = require('./native');
const answers = require('./answers');
const { unanswered } = require('./errors');
const { HttpRequest } = require('./request');
const { HttpResponse, live, fail, lose, runAll, guard, give, giveEmpty } = require('./response');

/** Routes that have handlers in JavaScript, by number, of this thread's applications that listen: others may be collected. */
const routes = [];
/** Numbers of routes whose application is no more. */
const freeNumbers = [];
let lastNumber = 0;

/** A number for another route. */
const routeNumber = () => freeNumbers.pop() ?? lastNumber++;

/** A request. */
function request(slot, route, hasContent) {
  const res = new HttpResponse(slot, route, hasContent);
  res.runInAsyncScope(handle, undefined, res);
}

/** Runs the handler of a request, and the next ones as long as they yield. */
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
        // A DeclarativeResponse has answered.
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
  if (!res._done || res._readsOn) keep(res);
}

/** The answer comes later, or the request's content does. */
function keep(res) {
  const later = res._later;
  if (!res._done && (later === undefined || later.onAborted.length === 0)) {
    fail(res, unanswered(`${res._route.method} ${res._route.pattern}`));
    return;
  }
  later.returned = true;
  live.set(res._slot, res);
  answers.watch(res._slot);
  if (later.onData !== undefined && !res._hasContent) giveEmpty(res);
}

function data(slot, isLast) {
  const res = live.get(slot);
  if (res === undefined) return;
  const later = res._later;
  later.readable = true;
  later.last = isLast;
  if (!later.paused) guard(res, give);
}

function aborted(slot) {
  const res = live.get(slot);
  if (res === undefined) return;
  // Whose response is complete has not been aborted.
  if (res._readsOn) return lose(res);
  res._finish();
  answers.forget(slot);
  runAll(res, res._later.onAborted);
}

function writable(slot) {
  const res = live.get(slot);
  if (res === undefined || res._done || res._later.onWritable === undefined) return;
  guard(res, () => res._later.onWritable(native.offset(slot)));
}

module.exports = { routes, routeNumber, freeNumbers, request, data, aborted, writable };
