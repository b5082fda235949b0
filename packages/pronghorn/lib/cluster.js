'use strict';

// Workers of node:cluster, including those of PM2. The processes share ports without the primary,
// which is only notified. The native counterpart is crates/node/src/ports.rs.

const fs = require('node:fs');
const { isMainThread } = require('node:worker_threads');
const native = require('./native');

/**
 * Milliseconds between marks that the shared folder is in use: cleaners of /tmp remove files that
 * are days old.
 */
const REFRESH_INTERVAL = 3_600_000;

/** The module node:cluster. It is loaded only when needed. */
let cluster;
/** Listeners shared with other processes of the cluster. */
const listeners = new Set();
/** Timer of `REFRESH_INTERVAL`. */
let refreshing;

/**
 * Returns whether this process is a worker of a cluster. Threads cannot ask the module, because it
 * removes its variable from process.env.
 */
function find() {
  // Their cluster modules use other messages.
  if (process.versions.bun || process.versions.deno) return false;
  if (isMainThread) {
    cluster = require('node:cluster');
    return cluster.isWorker === true;
  }
  try {
    return /(^|\0)NODE_UNIQUE_ID=/.test(fs.readFileSync('/proc/self/environ', 'latin1'));
  } catch {
    return false;
  }
}

let isWorker;

/** Returns whether listeners are shared with the other processes of a cluster. */
function shares() {
  return (isWorker ??= find());
}

/**
 * Announces a listener to the primary, and closes it when the primary disconnects. `host`: as
 * requested.
 */
function announce(socket, host, { port, family }, isUdp) {
  refreshing ??= setInterval(() => native.refreshPorts(), REFRESH_INTERVAL).unref();
  if (cluster?.worker === undefined || !process.connected) return;
  if (listeners.size === 0) process.once('disconnect', disconnected);
  listeners.add(socket);
  // Node.js reports 4 if no host is given, even for `::`.
  const version = host !== undefined && family === 'IPv6' ? 6 : 4;
  const addressType = isUdp ? `udp${version}` : version;
  cluster.worker.state = 'listening';
  process.send(
    { cmd: 'NODE_CLUSTER', act: 'listening', address: host ?? null, port, addressType },
    undefined,
    undefined,
    () => {
      // If the primary has gone, 'disconnect' follows.
    },
  );
}

function forget(socket) {
  listeners.delete(socket);
  if (listeners.size === 0) process.off('disconnect', disconnected);
}

/**
 * Handles worker.disconnect() and the end of the primary: the process exits when open requests are
 * finished.
 */
function disconnected() {
  for (const socket of [...listeners]) socket._disconnect();
}

module.exports = { shares, announce, forget };
