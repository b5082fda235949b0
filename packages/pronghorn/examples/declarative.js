// Responds without running JavaScript for each request.
const { App, DeclarativeResponse } = require('pronghorn');

App()
  .get(
    '/hello/:name',
    new DeclarativeResponse().write('hello ').writeParameterValue('name').end('!'),
  )
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
