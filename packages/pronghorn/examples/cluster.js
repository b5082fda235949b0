// One process a processor, all on one port, and another one for each that ends. It is the same over HTTP/3, where a connection stays with
// its process. PM2 does as much: `pm2 start server.js -i max`.
const cluster = require('node:cluster');
const { availableParallelism } = require('node:os');
const { App } = require('pronghorn');

if (cluster.isPrimary) {
  for (let index = 0; index < availableParallelism(); index++) cluster.fork();
  cluster.on('exit', () => cluster.fork());
  cluster.once('listening', () => console.log('listening'));
} else {
  App()
    .get('/*', (res) => res.end(`process ${cluster.worker.id}`))
    .listen(Number(process.env.PORT ?? 3000));
}
