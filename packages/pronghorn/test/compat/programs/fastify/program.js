'use strict';

const { Readable } = require('node:stream');
const fastify = require('fastify');

module.exports = async (door) => {
  const app = fastify({
    serverFactory: (handler) => door.createServer(handler),
    trustProxy: 'loopback',
  });
  const schema = {
    body: {
      type: 'object',
      required: ['name'],
      properties: { name: { type: 'string', minLength: 2 }, age: { type: 'integer' } },
    },
    response: { 201: { type: 'object', properties: { name: { type: 'string' } } } },
  };
  app.addHook('onSend', async (request, reply, payload) => {
    reply.header('x-hook', 'onSend');
    return payload;
  });
  app.post('/json', { schema, bodyLimit: 10_000 }, async (request, reply) =>
    reply.code(201).send({ ...request.body, secret: 1 }),
  );
  app.get(
    '/request/:id',
    async ({ protocol, host, hostname, ip, ips, method, params, query, originalUrl }) => ({
      protocol,
      host,
      hostname,
      ip,
      ips,
      method,
      params,
      query,
      originalUrl,
    }),
  );
  app.get('/stream', (request, reply) =>
    reply
      .type('text/plain')
      .send(Readable.from(Array.from({ length: 300 }, (_, at) => `${at} ${'x'.repeat(1000)}\n`))),
  );
  app.get(
    '/response',
    async () => new Response('of fetch', { status: 203, headers: { 'x-fetch': '1' } }),
  );
  app.get('/buffer', async () => Buffer.from([1, 2, 3]));
  app.get('/redirect', (request, reply) => reply.redirect('/request/1'));
  app.get('/throws', async () => {
    throw Object.assign(new Error('meant'), { statusCode: 409, code: 'E_MEANT' });
  });
  app.get('/hijack', (request, reply) => {
    reply.hijack();
    reply.raw.writeHead(207, { 'x-raw': '1' });
    reply.raw.end('raw');
  });
  app.get('/trailers', (request, reply) => {
    reply.trailer('x-sum', async () => '7');
    reply.send('content');
  });
  app.addContentTypeParser('application/x-lines', { parseAs: 'string' }, async (request, body) =>
    body.split('\n'),
  );
  app.post('/lines', async (request) => request.body);
  await app.ready();
  return app.server;
};
