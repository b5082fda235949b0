'use strict';

// Threads that serve and end, on request or by termination.

const { isMainThread, parentPort, Worker } = require('node:worker_threads');
const { App, H3App, developmentCertificate, us_socket_local_port } = require('uWebSockets.js');

const certificate = developmentCertificate({ folder: './development' });

async function main() {
  const results = [];
  for (const isAsked of [true, false, true]) {
    const worker = new Worker(__filename);
    const port = await new Promise((resolve, reject) =>
      worker.once('message', resolve).once('error', reject),
    );
    results.push(await (await fetch(`http://127.0.0.1:${port}/`)).text());
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    if (isAsked) worker.postMessage('close');
    else worker.terminate();
    const code = await ended;
    if (isAsked) results.push(code);
  }
  console.log(results.join(' '));
  process.exit(0);
}

function serve() {
  const secure = H3App(certificate).get('/*', (res) => res.end());
  const app = App().get('/*', (res) => res.end('thread'));
  secure.listen('127.0.0.1', 0, () => {});
  app.listen('127.0.0.1', 0, (socket) => parentPort.postMessage(us_socket_local_port(socket)));
  parentPort.once('message', () => {
    app.close();
    secure.close();
  });
}

if (isMainThread) main();
else serve();
