// Bun's own server: with a handler, with Hono, or with a static route, which runs no JavaScript.
const [modules, protocol, handler, port, cert, key] = process.argv.slice(2);

const hello = 'Hello, World!';
const tls = { cert: Bun.file(cert), key: Bun.file(key) };
const routes = { '/:file': handler === 'static' ? new Response(hello) : () => new Response(hello) };

async function hono() {
  const { Hono } = await import(`${modules}/hono/dist/index.js`);
  return new Hono().get('/:file', (context) => context.text(hello)).fetch;
}

Bun.serve({
  hostname: '127.0.0.1',
  port: Number(port),
  ...(protocol === 'h1-clear' ? {} : { tls, http3: protocol === 'h3' }),
  ...(handler === 'hono'
    ? { fetch: await hono() }
    : { routes: handler === 'static' ? { '/13.txt': routes['/:file'] } : routes }),
});
