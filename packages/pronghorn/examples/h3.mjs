import { H3 } from 'h3';
import { serve } from 'pronghorn/srvx';

const app = new H3().get('/', (event) => `hello ${event.req.ip}`);
await serve({ fetch: app.fetch, port: process.env.PORT ?? 3000 }).ready();
console.log('listening');
