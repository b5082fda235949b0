import { createServer, type Server } from 'pronghorn/http';
import { fetchHandler, serve, type ConnectionInfo } from 'pronghorn/fetch';
import { getConnInfo, serve as serveHono } from 'pronghorn/hono';
import { serve as serveSrvx, type ServerRequest } from 'pronghorn/srvx';
import { Server as App } from 'pronghorn';
import fastify from 'fastify';
import { Hono } from 'hono';

const server: Server = createServer({ key: 'k', cert: 'c', keepAliveTimeout: 5000 }, (req, res) => {
  res.writeHead(200, { 'x-url': req.url ?? '' }).end();
});
server.listen(0, '127.0.0.1', () => server.address()?.port);
fastify({ serverFactory: (handler) => createServer(handler) as never });

server.on('upgrade', (req, socket, head) => {
  const length: number = head.length;
  socket.end(`HTTP/1.1 401 Unauthorized\r\nx-length: ${length}\r\nx-url: ${req.url}\r\n\r\n`);
  socket.setTimeout(0).setNoDelay(true).resetAndDestroy();
  // @ts-expect-error what is known of the connection cannot be set
  socket.remoteAddress = '';
});

const hono = new Hono<{ Bindings: ConnectionInfo }>().get('/', (c) =>
  c.text(getConnInfo(c).remote.address + c.env.protocol),
);
serveHono({ fetch: hono.fetch, port: 0 }, (address) => address.port);
serve({ fetch: (request: Request) => new Response(request.url) }).close({ timeout: 10 });
App().any(
  '/*',
  fetchHandler((_request, info) => new Response(info.remote.address)),
);
serveSrvx({ fetch: (request: Request) => new Response(request.method), manual: true });
serveSrvx({ fetch: (request: ServerRequest) => new Response(request.ip) });
serveSrvx({
  fetch: () => new Response(),
  tls: { key: 'k', cert: 'c', ca: ['a'], requestCert: true },
});

// @ts-expect-error no such option
createServer({ sert: 'c' });
// @ts-expect-error a handler is needed
serve({ port: 1 });
