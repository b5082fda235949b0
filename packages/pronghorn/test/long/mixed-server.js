'use strict';

// A worker of the cluster that mixed.test.js loads: the main thread and a second one share the
// cluster's port. Each serves requests, uploads, endless streams and `ws` on the event `upgrade`;
// the second thread also has WebSocket routes.

const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const { setImmediate: turn } = require('node:timers/promises');
const { WebSocketServer } = require('ws');
const { createServer } = require('../../lib/http');
const native = require('../../lib/native');

const tls = isMainThread ? JSON.parse(process.env.PRONGHORN_TEST_TLS) : workerData.tls;
const troubles = [];
for (const event of ['uncaughtException', 'unhandledRejection', 'warning']) {
  process.on(event, (error) => {
    // Warnings about experimental options of the test itself are ignored.
    if (error?.name === 'ExperimentalWarning') return;
    troubles.push(`${event}: ${error?.stack ?? error}`);
    console.error(troubles.at(-1));
  });
}

const handlers = {
  '/upload': (req, res) => {
    let bytes = 0;
    req.on('data', (chunk) => (bytes += chunk.length));
    req.on('end', () => res.end(String(bytes)));
    req.on('error', () => {});
  },
  '/endless': (req, res) => {
    const write = () => {
      while (res.write('x'.repeat(16 << 10)));
    };
    res.on('drain', write);
    res.on('error', () => {});
    write();
  },
  '/later': (req, res) => setImmediate(() => res.end('later')),
};
const server = createServer(
  // By default the TLS session cache grows to 64 MiB and takes longer than the test to fill.
  {
    ...tls,
    limits: { sessions: 1000 },
    onError: (error, where) => troubles.push(`${where}: ${error.stack}`),
  },
  (req, res) => (handlers[req.url] ?? ((_req, plain) => plain.end('hello')))(req, res),
);
const clients = new WebSocketServer({ server, path: '/echo' });
clients.on('connection', (client) => {
  client.on('message', (data, isBinary) => client.send(data, { binary: isBinary }));
  client.on('error', () => {});
});
if (!isMainThread)
  server.app.ws('/socket', { message: (socket, data, isBinary) => socket.send(data, isBinary) });

server.on('error', (error) => {
  throw error;
});

async function measure() {
  // Objects released by finalizers and weak references are freed by the next collection.
  for (let time = 0; time < 3; time++) {
    globalThis.gc();
    await turn();
  }
  const { rss, heapUsed } = process.memoryUsage();
  const { tcp_open: tcp, quic_open: quic } = server.app.getStatistics();
  return {
    rss,
    heapUsed,
    open: tcp + quic,
    unanswered: native.openExchanges(),
    clients: clients.clients.size,
    troubles,
  };
}

if (isMainThread) {
  server.listen(
    { port: Number(process.env.PRONGHORN_TEST_PORT), host: '127.0.0.1', reusePort: true },
    () => {
      const thread = new Worker(__filename, { workerData: { tls, port: server.address().port } });
      const asked = [];
      thread.on('error', (error) => troubles.push(`thread: ${error.stack}`));
      thread.on('message', (message) => {
        if (message === 'listens') process.send(message);
        else asked.shift()(message);
      });
      process.on('message', async () => {
        const other = new Promise((resolve) => asked.push(resolve));
        thread.postMessage('measure');
        process.send([await measure(), await other]);
      });
    },
  );
} else {
  server.listen({ port: workerData.port, host: '127.0.0.1', reusePort: true }, () =>
    parentPort.postMessage('listens'),
  );
  parentPort.on('message', async () => parentPort.postMessage(await measure()));
}
