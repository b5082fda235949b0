// Reads a form with files.
const { App, getParts } = require('pronghorn');

App()
  .post('/form', (res, req) => {
    const type = req.getHeader('content-type');
    res
      .onAborted(() => {})
      .collectBody(1024 * 1024, (body) => {
        const parts = body === null ? undefined : getParts(body, type);
        if (parts === undefined) return res.writeStatus('400 Bad Request').end();
        res.end(parts.map(({ name, data }) => `${name}: ${data.byteLength} bytes`).join('\n'));
      });
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
