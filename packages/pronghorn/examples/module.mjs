// As an ES module.
import { App } from 'pronghorn';

App()
  .get('/*', (res) => res.end('hello'))
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
