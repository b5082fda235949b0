import { Hono } from 'hono';
import { serve } from 'pronghorn/hono';

const app = new Hono().get('/', (c) => c.text(`hello over ${c.env.protocol}`));
serve({ fetch: app.fetch, port: Number(process.env.PORT ?? 3000) }, () => console.log('listening'));
