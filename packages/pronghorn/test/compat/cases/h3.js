'use strict';

const own = {
  'routes and queries': async (ask) => [
    await ask('/users/7?a=1'),
    await ask('/nowhere'),
    await ask('/method', { method: 'PATCH' }),
    await ask('/page', { method: 'HEAD' }),
  ],
  'bodies of requests': async (ask) => [
    await ask('/json', { method: 'POST', json: { a: 1 } }),
    await ask('/echo', { method: 'POST', body: 'x'.repeat(100_000), pieces: 4 }),
  ],
  'pages, cookies and iterables': async (ask) => [
    await ask('/page'),
    await ask('/cookies', { jar: true }),
    await ask('/cookies', { jar: true }),
    await ask('/iterable'),
  ],
  'redirects, empty responses and errors': async (ask) => [
    await ask('/redirect'),
    await ask('/empty'),
    await ask('/error'),
  ],
};

module.exports = { covers: { h3: 'framework' }, cases: { h3: own } };
