'use strict';

const { assets, text } = require('../support/pages');

const own = {
  'a page with a query, a header and a cookie': async (ask) => {
    const headers = { 'user-agent': 'compat', cookie: 'visited=yes' };
    const { status, fields, body } = await ask('/?name=Ada', { headers });
    return [status, fields, /<p>.*?<\/p>/.exec(body)[0]];
  },
  'its scripts': async (ask) => assets(ask, (await ask('/')).body),
  'files of public': async (ask) => [
    await ask('/file.txt'),
    await ask('/file.txt', { headers: { range: 'bytes=1-2' } }),
  ],
  'routes of the server': async (ask) => [
    await ask('/api/hello?a=1'),
    await ask('/api/hello', { method: 'POST', body: 'x'.repeat(100_000), pieces: 4 }),
    text(await ask('/api/error')),
  ],
  'no page': async (ask) => text(await ask('/api/nowhere')),
};

module.exports = {
  node: '24',
  covers: { nuxt: 'meta-framework' },
  build: [['nuxt', 'build']],
  cases: { nuxt: own },
};
