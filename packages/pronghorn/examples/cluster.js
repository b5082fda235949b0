// Runs one process per processor on one port, and replaces each that ends. Over HTTP/3, a
// connection stays with its process. PM2 does the same: `pm2 start server.js -i max`.
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
