// Streams events until the client leaves or the server shuts down. Event streams never end by
// themselves, so the program ends them.
const { App } = require('pronghorn');

const streams = new Set();

const app = App()
  .get('/events', (res) => {
    let count = 0;
    res.writeHeader('content-type', 'text/event-stream');
    res.write('retry: 1000\n\n');
    const timer = setInterval(() => res.write(`data: ${count++}\n\n`), 20);
    const stop = () => {
      clearInterval(timer);
      streams.delete(end);
    };
    const end = () => {
      stop();
      res.end('event: bye\ndata:\n\n');
    };
    streams.add(end);
    res.onAborted(stop);
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));

process.once('SIGTERM', async () => {
  // First, so that clients that reconnect reach another server.
  const ended = app.close({ timeout: 10_000 });
  for (const end of streams) end();
  await ended;
  console.log('ended');
});
