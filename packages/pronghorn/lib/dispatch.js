'use strict';

// Events come in batches: four numbers each in memory that the native part writes. The other side is crates/node/src/addon.rs.

const native = require('./native');
const answers = require('./answers');
const exchanges = require('./exchanges');
const websocket = require('./websocket');
const webtransport = require('./webtransport');
const tunnel = require('./http/tunnel');
const { complain } = require('./errors');

const events = new Int32Array(native.events);
const { routes } = exchanges;
/** Where it stands whose handler runs: its request can be read although its response has ended. */
const CURRENT = events.length - 1;

/** Applications of this thread that listen, by number: others may be collected. */
const apps = [];
/** What is to be done when a listener has ended, by its number. */
const released = new Map();

function dispatch(count) {
  answers.hold();
  try {
    for (let index = 0; index < count; index++) {
      try {
        tell(index * 4);
      } catch (error) {
        // Handlers' own errors do not come here. The events after it are told all the same.
        complain('pronghorn: a defect of its own; please report it:', error);
      }
    }
  } finally {
    answers.releaseToCaller();
  }
}

function tell(at) {
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
      webtransport.told(subject, events[at + 2], events[at + 3], native.nextPayload());
      break;
    case 10:
      webtransport.heard(subject, events[at + 2], events[at + 3], native.nextPayload());
      break;
    case 11:
      tunnel.told(subject, events[at + 2], events[at + 3] === 1);
      break;
  }
}

/** A client asks for a server name that has no certificate. */
function missingServerName(app, name) {
  apps[app]._onMissingServerName(name);
}

native.setUp(dispatch, missingServerName);

module.exports = { apps, released };
