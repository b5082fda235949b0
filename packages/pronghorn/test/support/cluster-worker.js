'use strict';

// A cluster worker that runs the primary's operations; see cluster.test.js. A message has an id, an
// operation and its arguments.

const fs = require('node:fs');
const nodeHttp = require('node:http');
const path = require('node:path');
const { Worker } = require('node:worker_threads');
const uWS = require('../..');
const http = require('../../lib/http');
const fetchDoor = require('../../lib/fetch');
const srvx = require('../../lib/fetch/srvx');

// Hourly tasks run at once.
const every = setInterval;
global.setInterval = (action, time, ...given) => every(action, Math.min(time, 50), ...given);

const files = JSON.parse(process.env.PRONGHORN_TEST_TLS);
const pem = {
  key: fs.readFileSync(files.key_file_name, 'utf8'),
  cert: fs.readFileSync(files.cert_file_name, 'utf8'),
};
/** The operations of each listener, by its number: close like a program, or end at once. */
const servers = [];
/** Requests to /wait. */
const waiting = [];

const failed = (error) => ({ error: { code: error.code, message: error.message } });

const endApp = (made) => made.close({ timeout: 0 });
const endNode = (server) =>
  new Promise((resolve) => {
    server.close(resolve);
    server.closeAllConnections();
  });

/** A server with the interface of uWebSockets.js. */
function app(kind, { port, host, exclusive }) {
  const made = uWS[kind](kind === 'App' ? {} : files);
  made.get('/wait', (res) => {
    res.onAborted(() => {});
    waiting.push(() => res.end(`${process.pid}`));
    process.send({ waits: true });
  });
  made.any('/*', (res) => res.end(`${process.pid}`));
  return new Promise((resolve) => {
    const flags = exclusive ? uWS.LIBUS_LISTEN_EXCLUSIVE_PORT : uWS.LIBUS_LISTEN_DEFAULT;
    made.listen(...(host === undefined ? [] : [host]), port, flags, (socket, error) => {
      if (error) return resolve(failed(error));
      servers.push({
        app: made,
        stop: () => uWS.us_listen_socket_close(socket),
        end: () => endApp(made),
      });
      resolve({ port: uWS.us_socket_local_port(socket) });
    });
  });
}

/** A server with the interface of net.Server. */
function nodeServer(server, { port, host, exclusive }) {
  server.on('request', (req, res) => {
    if (req.url !== '/wait') return res.end(`${process.pid}`);
    waiting.push(() => res.end(`${process.pid}`));
    process.send({ waits: true });
  });
  return new Promise((resolve) => {
    server.once('error', (error) => resolve(failed(error)));
    server.listen({ port, host, exclusive }, () => {
      const end = () => (server.app === undefined ? endNode(server) : endApp(server.app));
      servers.push({ app: server.app, stop: () => server.close(), end });
      resolve({ port: server.address().port });
    });
  });
}

async function answer(request) {
  if (new URL(request.url).pathname === '/wait') {
    await new Promise((resolve) => {
      waiting.push(resolve);
      process.send({ waits: true });
    });
  }
  return new Response(`${process.pid}`);
}

const doors = {
  App: (given) => app('App', given),
  SSLApp: (given) => app('SSLApp', given),
  H3App: (given) => app('H3App', given),
  Server: (given) => app('Server', given),
  'node:http': (given) => nodeServer(nodeHttp.createServer(), given),
  http: (given) => nodeServer(http.createServer(pem), given),
  fetch: async ({ port, host, exclusive }) => {
    const server = fetchDoor.serve({ fetch: answer, port, hostname: host, exclusive, ...pem });
    servers.push({ app: server.app, stop: () => server.close(), end: () => endApp(server.app) });
    return { port: server.address().port };
  },
  srvx: async ({ port, host }) => {
    const tls = { key: pem.key, cert: pem.cert };
    const server = srvx.serve({
      fetch: answer,
      port,
      hostname: host,
      tls,
      silent: true,
      gracefulShutdown: false,
    });
    await server.ready();
    const { app: made } = server.pronghorn;
    servers.push({ app: made, stop: () => server.close(), end: () => endApp(made) });
    return { port: server.pronghorn.address().port };
  },
};

const actions = {
  listen: ({ door, ...given }) => doors[door](given),
  /** In a thread of this process. */
  thread: ({ port, kind }) =>
    new Promise((resolve) => {
      const workerData = { port, kind, tls: files };
      const thread = new Worker(path.join(__dirname, 'worker.js'), { workerData });
      const ended = new Promise((resolveEnd) => thread.once('exit', resolveEnd));
      const stop = () => thread.postMessage('close');
      servers.push({ stop, end: () => (stop(), ended) });
      thread.once('message', (bound) => resolve({ port: bound }));
      thread.once('error', (error) => resolve(failed(error)));
    }),
  /** Changes the user after the port is bound. */
  become: ({ user }) => {
    process.setgid(user);
    process.setuid(user);
  },
  stop: ({ number }) => servers[number].stop(),
  /** Closes all servers. */
  reset: async () => {
    await Promise.all(servers.splice(0).map(({ end }) => end()));
    waiting.length = 0;
  },
  statistics: () =>
    servers
      .map((server) => server.app?.getStatistics() ?? {})
      .reduce((sum, statistics) => {
        for (const [name, value] of Object.entries(statistics))
          sum[name] = (sum[name] ?? 0) + value;
        return sum;
      }, {}),
};

// Pending requests are answered when the cluster has disconnected.
process.once('disconnect', () => setTimeout(() => waiting.splice(0).forEach((end) => end()), 50));

process.on('message', async ({ id, action, ...given }) => {
  let result;
  try {
    result = await actions[action](given);
  } catch (error) {
    result = failed(error);
  }
  process.send({ id, ...(result ?? {}) });
});
