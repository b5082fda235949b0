'use strict';

// A worker thread with a server; see the thread tests.

const { parentPort, threadId, workerData } = require('node:worker_threads');
const uWS = require('../..');

const { port, kind, tls, byThread } = workerData;
if (byThread) require('./by-thread');
const app = uWS[kind](kind === 'App' ? {} : tls).get('/*', (res) => res.end(`thread ${threadId}`));
app.listen('127.0.0.1', port, (socket, error) => {
  if (error) throw error;
  parentPort.postMessage(uWS.us_socket_local_port(socket));
});
parentPort.once('message', () => {
  app.close();
});
