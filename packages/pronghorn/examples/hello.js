// HTTP/1.1 in clear text.
const { App } = require('pronghorn');

App()
  .get('/*', (res) => res.end('hello'))
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
