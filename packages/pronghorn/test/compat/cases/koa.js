'use strict';

const own = {
  'properties of requests': (ask) =>
    ask('/request?a=1&a=2', {
      headers: { 'x-forwarded-for': '192.0.2.1', accept: 'text/html', 'accept-encoding': 'gzip' },
    }),
  'signed cookies': async (ask) => [
    await ask('/cookies', { jar: true }),
    await ask('/cookies', { jar: true }),
  ],
  'bodies of requests': async (ask) => [
    await ask('/echo', { method: 'POST', body: 'x'.repeat(200_000), pieces: 5 }),
    await ask('/pipe', { method: 'PUT', body: 'piped', pieces: 2 }),
    await ask('/echo', { method: 'POST' }),
  ],
  'streams, blobs and responses of fetch': async (ask) => [
    await ask('/stream'),
    await ask('/blob'),
    await ask('/response'),
    await ask('/empty'),
  ],
  'conditional requests': async (ask) => [
    await ask('/etag'),
    await ask('/etag', { headers: { 'if-none-match': '"tag"' } }),
  ],
  'redirects and attachments': async (ask) => [await ask('/redirect'), await ask('/attachment')],
  'names of attachments in ISO 8859-1': {
    run: (ask) => ask('/attachment/latin'),
    differs:
      'they go out as Koa has written them; `node:http` takes them for UTF-8 and sends U+FFFD',
  },
  errors: async (ask) => [await ask('/throw'), await ask('/fails')],
  'the body of a status': {
    run: (ask) => ask('/nowhere'),
    over: ['HTTP/2', 'HTTP/3'],
    differs:
      'Koa sends `404` in place of `Not Found` over HTTP/2 and HTTP/3, which have no reason phrases',
  },
  'a response of its own': (ask) => ask('/own'),
  HEAD: async (ask) => [
    await ask('/stream', { method: 'HEAD' }),
    await ask('/etag', { method: 'HEAD' }),
  ],
};

module.exports = { covers: { koa: 'framework' }, cases: { koa: own } };
