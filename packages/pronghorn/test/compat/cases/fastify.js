'use strict';

const own = {
  'bodies with a schema': async (ask) => [
    await ask('/json', { method: 'POST', json: { name: 'Ada', age: '7' } }),
    await ask('/json', { method: 'POST', json: { name: 'A' } }),
    await ask('/json', { method: 'POST', json: { name: 'A'.repeat(20_000) } }),
    await ask('/json', {
      method: 'POST',
      body: '{',
      headers: { 'content-type': 'application/json' },
    }),
    await ask('/json', { method: 'POST', body: '<a/>', headers: { 'content-type': 'text/xml' } }),
    await ask('/json', { method: 'POST' }),
  ],
  'content-type parsers': (ask) =>
    ask('/lines', {
      method: 'POST',
      body: 'a\nb',
      pieces: 2,
      headers: { 'content-type': 'application/x-lines' },
    }),
  'properties of requests': (ask) =>
    ask('/request/7?a=1', { headers: { 'x-forwarded-for': '192.0.2.1' } }),
  'streams, buffers and responses of fetch': async (ask) => [
    await ask('/stream'),
    await ask('/buffer'),
    await ask('/response'),
  ],
  'redirects and errors': async (ask) => [
    await ask('/redirect'),
    await ask('/throws'),
    await ask('/nowhere'),
  ],
  HEAD: async (ask) => [
    await ask('/buffer', { method: 'HEAD' }),
    await ask('/stream', { method: 'HEAD' }),
  ],
  'hijacked responses': (ask) => ask('/hijack'),
};

module.exports = { covers: { fastify: 'framework' }, cases: { fastify: own } };
