// Events as they happen, until the client leaves.
const { App } = require('pronghorn');

App()
  .get('/events', (res) => {
    let count = 0;
    res.writeHeader('content-type', 'text/event-stream');
    res.write('retry: 1000\n\n');
    const timer = setInterval(() => res.write(`data: ${count++}\n\n`), 20);
    res.onAborted(() => clearInterval(timer));
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
