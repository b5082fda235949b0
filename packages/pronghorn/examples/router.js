// Parameters, wildcards, methods, and a route that passes the request to the next one.
const { App } = require('pronghorn');

App()
  .any('/*', (res) => res.writeStatus('404 Not Found').end('nothing here'))
  .get('/users/:id', (res, req) =>
    res.end(`user ${req.getParameter('id')}, page ${req.getQuery('page') ?? 1}`),
  )
  .get('/users/me', (res) => res.end('you'))
  .get('/files/*', (res, req) => res.end(`file ${req.getUrl()}`))
  .del('/users/:id', (res, req) => {
    if (req.getHeader('authorization') === '') return req.setYield(true);
    res.end('deleted');
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
