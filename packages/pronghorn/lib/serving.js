'use strict';

// An application for a framework, and where it listens.

const native = require('./native');
const uWS = require('./app');
const { CERTIFICATE } = require('./options');

const TLS = [...CERTIFICATE, 'without_certificate'];

const isSecure = (settings) => TLS.some((name) => settings[name] !== undefined);

/** With a certificate all protocols on one port, without one HTTP/1.1. */
const makeApp = (settings) => (isSecure(settings) ? uWS.Server(settings) : uWS.App(settings));

/**
 * Listens, or throws. Returns what is to be given to `addressOf` and `setReferenced`.
 *
 * `reusePort`: other threads may listen there, too. `exclusive`: no other process of a cluster. `disconnect`: called when a cluster
 * disconnects, to close.
 */
function listen(app, { port, host, reusePort, exclusive, disconnect }) {
  let flags = reusePort ? 0 : uWS.LISTEN_CLUSTER_ONLY;
  if (exclusive) flags = uWS.LISTEN_EXCLUSIVE_PORT;
  let listening;
  app.listen(...(host ? [host] : []), port, flags, (socket, error) => {
    if (error) throw error;
    listening = socket;
  });
  if (disconnect !== undefined) listening._disconnect = disconnect;
  return listening;
}

/** As net.Server.address() has it; `null` when it has ended. */
const addressOf = (listening) => listening?._address() ?? null;

/** Whether the process stays because of it. */
function setReferenced(listening, isReferenced) {
  if (listening && listening._number >= 0) native.setReferenced(listening._number, isReferenced);
}

module.exports = { isSecure, makeApp, listen, addressOf, setReferenced };
