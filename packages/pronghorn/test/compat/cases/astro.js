'use strict';

const { assets, text } = require('../support/pages');

const own = {
  'a page with a query, a header and a cookie': async (ask) => {
    const headers = { 'user-agent': 'compat', cookie: 'visited=yes' };
    const { status, fields, body } = await ask('/?name=Ada', { headers });
    return [status, fields, /<p[ >].*?<\/p>/.exec(body)[0], await ask('/?name=nobody')];
  },
  'its scripts': async (ask) => assets(ask, (await ask('/')).body),
  'files of public': async (ask) => [
    await ask('/file.txt'),
    await ask('/file.txt', { headers: { range: 'bytes=1-2' } }),
  ],
  endpoints: async (ask) => [
    await ask('/api?a=1'),
    await ask('/api', {
      method: 'POST',
      body: 'x'.repeat(100_000),
      pieces: 4,
      headers: { 'content-type': 'application/json' },
    }),
    await ask('/api', { method: 'HEAD' }),
  ],
  'the check of the origin of forms': async (ask) =>
    text(
      await ask('/api', {
        method: 'POST',
        form: { a: '1' },
        headers: { origin: 'https://example.com' },
      }),
    ),
  'responses that stream': (ask) => ask('/stream'),
  'no page': async (ask) => text(await ask('/nowhere')),
};

module.exports = {
  node: '24',
  covers: { astro: 'meta-framework' },
  build: [['astro', 'build']],
  cases: { astro: own },
};
