// Bun's own server: with a handler, or with a static route that no JavaScript is called for.
const [, protocol, handler, port, cert, key] = process.argv.slice(2);

const hello = 'Hello, World!';
const tls = { cert: Bun.file(cert), key: Bun.file(key) };
const routes = { '/:file': handler === 'static' ? new Response(hello) : () => new Response(hello) };
Bun.serve({
  hostname: '127.0.0.1',
  port: Number(port),
  ...(protocol === 'h1-clear' ? {} : { tls, http3: protocol === 'h3' }),
  routes: handler === 'static' ? { '/13.txt': routes['/:file'] } : routes,
});
