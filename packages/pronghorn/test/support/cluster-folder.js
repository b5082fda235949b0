'use strict';

// A cluster of two that listen on the same port, one after the other; the primary prints what came of each.
// usage: node cluster-folder.js App|http

const cluster = require('node:cluster');
const { once } = require('node:events');
const uWS = require('../..');
const http = require('../../lib/http');

async function lead() {
  const all = [];
  for (let number = 0; number < 2; number++) {
    const worker = cluster.fork();
    const [said] = await once(worker, 'message');
    all.push(said);
  }
  console.log(JSON.stringify(all));
  for (const worker of Object.values(cluster.workers)) worker.kill('SIGKILL');
}

function serve(door) {
  const failed = (error) => process.send({ code: error.code, error: error.message });
  if (door === 'App') {
    uWS
      .App()
      .listen(0, (socket, error) => (error ? failed(error) : process.send({ port: uWS.us_socket_local_port(socket) })));
  } else {
    const server = http.createServer();
    server.on('error', failed);
    server.listen(0, () => process.send({ port: server.address().port }));
  }
}

if (cluster.isPrimary) lead();
else serve(process.argv[2]);
