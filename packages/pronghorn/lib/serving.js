'use strict';

// Applications and listeners of the framework interfaces.

const native = require('./native');
const uWS = require('./app');
const { CERTIFICATE } = require('./options');

const TLS = [...CERTIFICATE, 'without_certificate'];

const isSecure = (settings) => TLS.some((name) => settings[name] !== undefined);

/** Creates an app: all protocols on one port with a certificate, HTTP/1.1 without one. */
const makeApp = (settings) => (isSecure(settings) ? uWS.Server(settings) : uWS.App(settings));

/**
 * Listens, or throws. Returns the listener, for `addressOf` and `setReferenced`.
 *
 * `reusePort`: other threads may share the port. `exclusive`: other processes of a cluster may not.
 * `disconnect`: called when the cluster disconnects, to close the listener.
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

/** Returns the address in the form of net.Server.address(); `null` if the listener has ended. */
const addressOf = (listening) => listening?._address() ?? null;

/** Sets whether the listener keeps the process running. */
function setReferenced(listening, isReferenced) {
  if (listening && listening._number >= 0) native.setReferenced(listening._number, isReferenced);
}

module.exports = { isSecure, makeApp, listen, addressOf, setReferenced };
