'use strict';

const own = (prefix) => ({
  'routes, pipes and bodies': async (ask) => [
    await ask(`${prefix}/pages/7?page=2`),
    await ask(`${prefix}/pages/none`),
    await ask(`${prefix}/pages`, { method: 'POST', json: { a: 1 } }),
    await ask(`${prefix}/nowhere`),
    await ask(`${prefix}/pages/7`, { method: 'HEAD' }),
  ],
  'exceptions and redirects': async (ask) => [
    await ask(`${prefix}/fails`),
    await ask(`${prefix}/throws`),
    await ask(`${prefix}/redirects`),
  ],
  'server-sent events': (ask) =>
    ask(`${prefix}/events`, { headers: { accept: 'text/event-stream' } }),
  files: (ask) => ask(`${prefix}/file`),
});

module.exports = {
  covers: {
    '@nestjs/core': 'framework',
    '@nestjs/platform-express': 'adapter of NestJS',
    '@nestjs/platform-fastify': 'adapter of NestJS',
  },
  cases: {
    '@nestjs/core': { 'both adapters': (ask) => ask('/express/pages/1') },
    '@nestjs/platform-express': own('/express'),
    '@nestjs/platform-fastify': own('/fastify'),
  },
};
