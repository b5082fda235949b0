// Reads a JSON body of limited size.
const { App } = require('pronghorn');

App()
  .post('/json', (res) => {
    res.onAborted(() => {});
    res.collectBody(64 * 1024, (body) => {
      if (body === null) return res.writeStatus('413 Content Too Large').end();
      const { name } = JSON.parse(Buffer.from(body).toString());
      res.writeHeader('content-type', 'application/json').end(JSON.stringify({ hello: name }));
    });
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
