'use strict';

// Events come in batches: four numbers each, in memory that the addon writes. The native
// counterpart is crates/node/src/addon.rs.

const native = require('./native');
const operations = require('./operations');
const exchanges = require('./exchanges');
const websocket = require('./websocket');
const webtransport = require('./webtransport');
const tunnel = require('./http/tunnel');
const { logError } = require('./errors');

const events = new Int32Array(native.events);
const { routes } = exchanges;
/**
 * Index of the slot whose handler runs. Its request can be read although its response has ended.
 */
const CURRENT = events.length - 1;

/** Listening applications of this thread, by number. Others may be garbage-collected. */
const apps = [];
/** Callbacks for the end of a listener, by its number. */
const released = new Map();

function dispatch(count) {
  operations.hold();
  try {
    for (let index = 0; index < count; index++) {
      try {
        deliver(index * 4);
      } catch (error) {
        // Errors of handlers are reported elsewhere. The remaining events are delivered.
        logError('pronghorn: internal error, please report it:', error);
      }
    }
  } finally {
    operations.releaseToCaller();
  }
}

function deliver(at) {
  const subject = events[at + 1];
  switch (events[at]) {
    case 0:
      events[CURRENT] = subject;
      exchanges.request(subject, routes[events[at + 2]], events[at + 3] === 1);
      break;
    case 1:
      exchanges.data(subject, events[at + 2] === 1);
      break;
    case 2:
      exchanges.aborted(subject);
      break;
    case 3:
      exchanges.writable(subject);
      break;
    case 4:
      apps[subject]._onConnection(events[at + 2], native.nextRemote());
      break;
    case 5:
      released.get(subject)?.();
      released.delete(subject);
      break;
    case 6:
      websocket.message(subject, events[at + 2], native.nextPayload());
      break;
    case 7:
      websocket.drain(subject);
      break;
    case 8:
      websocket.close(subject, events[at + 2], native.nextPayload());
      break;
    case 9:
      webtransport.onSessionEvent(subject, events[at + 2], events[at + 3], native.nextPayload());
      break;
    case 10:
      webtransport.onStreamEvent(subject, events[at + 2], events[at + 3], native.nextPayload());
      break;
    case 11:
      tunnel.onTunnelEvent(subject, events[at + 2], events[at + 3] === 1);
      break;
  }
}

/** Handles a server name without a certificate. */
function missingServerName(app, name) {
  apps[app]._onMissingServerName(name);
}

native.setUp(dispatch, missingServerName);

module.exports = { apps, released };
