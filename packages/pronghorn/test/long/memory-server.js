'use strict';

// The server that memory.test.js measures, in its own process. Arguments: the kind of app, and its
// options as JSON.

const { setImmediate: turn } = require('node:timers/promises');
const uWS = require('../..');
const native = require('../../lib/native');

const [kind, options] = process.argv.slice(2);
const app = uWS[kind](JSON.parse(options))
  .get('/now', (res) => res.end('answered now\n'))
  .get('/later', (res) => {
    // Kept across an await, as pending responses are.
    res.onAborted(() => {});
    setImmediate(() => res.end('answer later\n'));
  })
  .listen('127.0.0.1', 0, (socket, error) => {
    if (error) throw error;
    process.send({ port: uWS.us_socket_local_port(socket) });
  });

/** Memory use after garbage collection. */
async function measure() {
  // Objects released by finalizers and weak references are freed by the next collection.
  for (let time = 0; time < 3; time++) {
    globalThis.gc();
    await turn();
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  return { rss, heapUsed, external, unanswered: native.openExchanges() };
}

/** Counts of open connections and received requests. */
function count() {
  const all = app.getStatistics();
  return {
    open: all.tcp_open + all.quic_open,
    requests: all.requests_http1 + all.requests_http2 + all.requests_http3,
  };
}

process.on('message', async (what) => {
  process.send(what === 'measure' ? await measure() : count());
});
