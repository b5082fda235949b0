// Shuts down gracefully on SIGTERM: notifies clients, and finishes open requests.
const { App } = require('pronghorn');

const app = App()
  .get('/slow', (res) => {
    res.onAborted(() => {});
    setTimeout(() => res.end('finished'), 100);
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));

process.once('SIGTERM', async () => {
  await app.close({ timeout: 10_000 });
  console.log('ended');
});
