// Runs one thread per processor on one port. Over HTTP/3, a connection stays with its thread.
const { availableParallelism } = require('node:os');
const { isMainThread, threadId, Worker } = require('node:worker_threads');
const { App } = require('pronghorn');

if (isMainThread) {
  for (let index = 0; index < availableParallelism(); index++) new Worker(__filename);
} else {
  App()
    .get('/*', (res) => res.end(`thread ${threadId}`))
    .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
}
