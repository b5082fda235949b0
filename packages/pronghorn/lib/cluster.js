'use strict';

// Workers of node:cluster, those of PM2 included: its processes share ports without the primary's help, which hears of them all the same.
// The other side is crates/node/src/ports.rs.

const fs = require('node:fs');
const { isMainThread } = require('node:worker_threads');
const native = require('./native');

/** How often the folder in which processes meet is marked as used: cleaners of /tmp remove what has not been for days. */
const REFRESH_INTERVAL = 3_600_000;

/** The module, in processes that it has started; elsewhere it is not even loaded. */
let cluster;
/** Listeners that other processes of the cluster share. */
const listeners = new Set();
/** The timer for that. */
let refreshing;

/** Whether this process is a worker of a cluster. Its threads do not hear it from the module, whose variable is removed from process.env. */
function find() {
  // Theirs are others, with messages of their own.
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

/** Whether what listens here is to be shared with the other processes of a cluster. */
function shares() {
  return (isWorker ??= find());
}

/** Tells the primary, and ends with the connection to it. `address`: as net.Server has it; `host`: what was asked for. */
function announce(socket, host, { port, family }, isUdp) {
  refreshing ??= setInterval(() => native.refreshPorts(), REFRESH_INTERVAL).unref();
  if (cluster?.worker === undefined || !process.connected) return;
  if (listeners.size === 0) process.once('disconnect', disconnected);
  listeners.add(socket);
  // As Node.js has it where no host is given: 4, also if it is `::`.
  const version = host !== undefined && family === 'IPv6' ? 6 : 4;
  const addressType = isUdp ? `udp${version}` : version;
  cluster.worker.state = 'listening';
  process.send(
    { cmd: 'NODE_CLUSTER', act: 'listening', address: host ?? null, port, addressType },
    undefined,
    undefined,
    () => {
      // The primary has gone: 'disconnect' says so.
    },
  );
}

function forget(socket) {
  listeners.delete(socket);
  if (listeners.size === 0) process.off('disconnect', disconnected);
}

/** worker.disconnect(), or the end of the primary: nothing is left that the process would stay for when what runs is finished. */
function disconnected() {
  for (const socket of [...listeners]) socket._disconnect();
}

module.exports = { shares, announce, forget };
