'use strict';

// An application for a framework, and where it listens.

const native = require('./native');
const uWS = require('./app');

const TLS = ['key', 'cert', 'key_file_name', 'cert_file_name', 'without_certificate'];

const isSecure = (settings) => TLS.some((name) => settings[name] !== undefined);

/** With a certificate all protocols on one port, without one HTTP/1.1. */
const makeApp = (settings) => (isSecure(settings) ? uWS.Server(settings) : uWS.App(settings));

/** Listens, or throws. Returns what is to be given to `addressOf` and `setReferenced`. */
function listen(app, { port, host, exclusive }) {
  let listening;
  app.listen(...(host ? [host] : []), port, exclusive ? uWS.LISTEN_EXCLUSIVE_PORT : 0, (socket, error) => {
    if (error) throw error;
    listening = socket;
  });
  return listening;
}

/** As net.Server.address() has it; `null` when it has ended. */
function addressOf(listening) {
  const text = listening && listening._number >= 0 ? native.address(listening._number) : undefined;
  if (text === undefined) return null;
  const colon = text.lastIndexOf(':');
  const address = text.slice(0, colon).replace(/^\[|\]$/g, '');
  return { address, family: address.includes(':') ? 'IPv6' : 'IPv4', port: Number(text.slice(colon + 1)) };
}

/** Whether the process stays because of it. */
function setReferenced(listening, isReferenced) {
  if (listening && listening._number >= 0) native.setReferenced(listening._number, isReferenced);
}

module.exports = { isSecure, makeApp, listen, addressOf, setReferenced };
