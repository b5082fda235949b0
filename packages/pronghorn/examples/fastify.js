const { createServer } = require('pronghorn/http');
const fastify = require('fastify')({ serverFactory: (handler) => createServer(handler) });

fastify.get('/', async () => ({ hello: 'world' }));
fastify.listen({ port: Number(process.env.PORT ?? 3000) }, () => console.log('listening'));
