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
  'actions of forms': async (ask) =>
    ask('/?index', {
      method: 'POST',
      form: { name: 'Ada' },
      headers: { origin: 'https://localhost' },
    }),
  'resource routes': async (ask) => [
    await ask('/api?a=1'),
    await ask('/api', { method: 'POST', body: 'x'.repeat(100_000), pieces: 4 }),
    await ask('/api', { method: 'DELETE' }),
  ],
  'pages that stream, and navigation within the application': async (ask) => {
    const { status, body } = await ask('/slow');
    return [status, body.includes('waiting'), body.includes('late'), text(await ask('/slow.data'))];
  },
  'no page': async (ask) => text(await ask('/nowhere')),
};

module.exports = {
  node: '24',
  covers: { 'react-router': 'meta-framework' },
  build: [['react-router', 'build']],
  cases: { 'react-router': own },
};
