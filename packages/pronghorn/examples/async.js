// Responds later: read the request before the first await, and respond only if the client is still
// there.
const { App } = require('pronghorn');

const lookUp = async (name) => `found ${name}`;

App()
  .get('/:name', async (res, req) => {
    let aborted = false;
    res.onAborted(() => (aborted = true));
    const found = await lookUp(req.getParameter('name'));
    if (!aborted) res.cork(() => res.writeHeader('content-type', 'text/plain').end(found));
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
