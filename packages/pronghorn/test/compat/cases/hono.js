'use strict';

const own = {
  'routes, parameters and queries': async (ask) => [
    await ask('/users/7?a=1&a=2'),
    await ask('/users/%C3%BC'),
    await ask('/nowhere'),
    await ask('/users/7', { method: 'HEAD' }),
  ],
  'CORS, secure headers and entity tags': async (ask) => {
    const headers = { origin: 'https://example.com' };
    const first = await ask('/middleware/page', { headers });
    return [
      first,
      await ask('/middleware/page', {
        headers: { ...headers, 'if-none-match': first.fields.etag },
      }),
      await ask('/middleware/page', {
        method: 'OPTIONS',
        headers: { ...headers, 'access-control-request-method': 'PUT' },
      }),
    ];
  },
  'bodies of requests': async (ask) => [
    await ask('/validated', { method: 'POST', json: { name: 'Ada' } }),
    await ask('/validated', { method: 'POST', json: {} }),
    await ask('/validated', {
      method: 'POST',
      body: '{',
      headers: { 'content-type': 'application/json' },
    }),
    await ask('/form', { method: 'POST', form: { a: '1', b: 'ü' } }),
    await ask('/echo', { method: 'POST', body: 'x'.repeat(100_000), pieces: 4 }),
    await ask('/bytes', { method: 'POST', body: Buffer.from([0, 255]) }),
  ],
  cookies: async (ask) => [
    await ask('/cookies', { jar: true }),
    await ask('/cookies', { jar: true }),
  ],
  'streams and server-sent events': async (ask) => [
    await ask('/stream'),
    await ask('/events'),
    await ask('/web-stream'),
  ],
  'redirects, empty responses and errors': async (ask) => [
    await ask('/redirect'),
    await ask('/empty'),
    await ask('/exception'),
    await ask('/fails'),
  ],
};

module.exports = { covers: { hono: 'framework' }, cases: { hono: own } };
