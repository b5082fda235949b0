'use strict';

const { assets, text } = require('../support/pages');

const own = {
  'a page with a query, a header and a cookie': async (ask) => {
    const headers = { 'user-agent': 'compat', cookie: 'visited=yes' };
    const { status, fields, body } = await ask('/?name=Ada', { headers });
    return [status, fields['content-type'], /<p>.*?<\/p>/.exec(body)[0]];
  },
  'its scripts': async (ask) => assets(ask, (await ask('/')).body),
  'static files': async (ask) => [
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
    // Of a size that is there before the answer: node:http closes the connection with it, unread.
    await ask('/api', { method: 'POST', body: 'x' }),
    await ask('/api', { method: 'DELETE', headers: { accept: 'application/json' } }),
    await ask('/api', { method: 'HEAD' }),
  ],
  'form actions, and their check of the origin': async (ask) => {
    const origin = { origin: 'https://localhost' };
    const form = (name) => ({ method: 'POST', body: `name=${name}` });
    const headers = { 'content-type': 'application/x-www-form-urlencoded', accept: 'text/html' };
    const answers = [
      await ask('/', { ...form('Ada'), headers: { ...headers, ...origin } }),
      await ask('/', { ...form(''), headers: { ...headers, ...origin } }),
      await ask('/', { ...form('Ada'), headers: { ...headers, origin: 'https://example.com' } }),
    ];
    return answers.map(({ status, fields }) => [status, fields.location, fields['set-cookie']]);
  },
  'pages that stream': async (ask) => {
    const { status, body } = await ask('/slow');
    return [status, body.includes('waiting'), body.includes('late')];
  },
  'no page': async (ask) => text(await ask('/nowhere')),
};

module.exports = {
  node: '24',
  covers: { '@sveltejs/kit': 'meta-framework' },
  build: [['vite', 'build']],
  cases: { '@sveltejs/kit': own },
};
