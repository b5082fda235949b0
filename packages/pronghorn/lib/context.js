'use strict';

// Asynchronous contexts of native events. One call delivers the events of many clients: without a
// context each, state that a program sets for one client (`AsyncLocalStorage.enterWith`) would be
// visible to the next one.

const { AsyncResource } = require('node:async_hooks');

/** The `destroy` hook runs when the context ends, not when it is garbage-collected. */
const OPTIONS = { requireManualDestroy: true };

/** Calls `callback` in a context that ends when it returns. */
function once(type, callback, ...given) {
  const resource = new AsyncResource(type, OPTIONS);
  try {
    return resource.runInAsyncScope(callback, undefined, ...given);
  } finally {
    resource.emitDestroy();
  }
}

module.exports = { AsyncResource, OPTIONS, once };
