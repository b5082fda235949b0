import { Readable } from 'node:stream';
import { Hono } from 'hono';
import { getCookie, setCookie } from 'hono/cookie';
import { cors } from 'hono/cors';
import { etag } from 'hono/etag';
import { HTTPException } from 'hono/http-exception';
import { secureHeaders } from 'hono/secure-headers';
import { stream, streamSSE } from 'hono/streaming';
import { validator } from 'hono/validator';
import { serve } from 'pronghorn/hono';
import { toNodeHandler } from 'srvx/node';

function makeApp() {
  const app = new Hono();
  app.use(
    '/middleware/*',
    cors({ origin: 'https://example.com', credentials: true }),
    secureHeaders(),
    etag(),
  );
  app.get('/middleware/page', (c) => c.html('<p>page</p>'));
  app.get('/users/:id', (c) =>
    c.json({ id: c.req.param('id'), query: c.req.queries('a') ?? null, url: c.req.path }),
  );
  app.post(
    '/validated',
    validator('json', (value, c) =>
      typeof value.name === 'string' ? value : c.text('no name', 400),
    ),
    (c) => c.json(c.req.valid('json'), 201),
  );
  app.post('/form', async (c) => c.json(await c.req.parseBody()));
  app.post('/echo', (c) => c.body(c.req.raw.body));
  app.post('/bytes', async (c) => c.body(await c.req.arrayBuffer()));
  app.get('/cookies', (c) => {
    setCookie(c, 'name', 'a b', { httpOnly: true, sameSite: 'Strict' });
    setCookie(c, 'other', '1');
    return c.json(getCookie(c));
  });
  app.get('/stream', (c) =>
    stream(c, async (out) => {
      for (let at = 0; at < 100; at++) await out.write(`${at} ${'x'.repeat(1000)}\n`);
    }),
  );
  app.get('/events', (c) =>
    streamSSE(c, async (out) => {
      for (let at = 0; at < 3; at++) await out.writeSSE({ id: String(at), data: `event ${at}` });
    }),
  );
  app.get(
    '/web-stream',
    () => new Response(Readable.toWeb(Readable.from([Buffer.from('web '), Buffer.from('stream')]))),
  );
  app.get('/redirect', (c) => c.redirect('/users/7'));
  app.get('/empty', (c) => c.body(null, 204));
  app.get('/exception', () => {
    throw new HTTPException(403, { message: 'meant' });
  });
  app.get('/fails', () => {
    throw new Error('meant');
  });
  app.onError((error, c) =>
    error instanceof HTTPException ? error.getResponse() : c.text('handled', 500),
  );
  return app;
}

export default (door) => {
  const { fetch } = makeApp();
  return door.isPronghorn
    ? serve({ fetch, port: 0, hostname: '127.0.0.1', ...door.tls, overrideGlobalObjects: false })
    : toNodeHandler(fetch);
};
