// Sends 103 (Early Hints): the browser fetches the style sheet while the server builds the page.
const { App } = require('pronghorn');

App()
  .get('/', (res) => {
    res.onAborted(() => {});
    res.writeEarlyHints('</style.css>; rel=preload; as=style');
    setImmediate(() =>
      res.writeHeader('content-type', 'text/html').end('<link rel="stylesheet" href="/style.css">'),
    );
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
