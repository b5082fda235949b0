'use strict';

// Asynchronous contexts of what the native part tells. It tells of many clients in one call: without a context of its own, what a program
// notes for one of them (`AsyncLocalStorage.enterWith`) would be there for the next one.

const { AsyncResource } = require('node:async_hooks');

/** Nobody is told when a resource is collected, but when it is over. */
const OPTIONS = { requireManualDestroy: true };

/** Calls `callback` in a context that is over when it returns. */
function once(type, callback, ...given) {
  const resource = new AsyncResource(type, OPTIONS);
  try {
    return resource.runInAsyncScope(callback, undefined, ...given);
  } finally {
    resource.emitDestroy();
  }
}

module.exports = { AsyncResource, OPTIONS, once };
