'use strict';

const long = 'x'.repeat(20_000);
const own = {
  'routes, parameters and queries': async (ask) => [
    await ask('/users/7?a=1&b=2&b=3'),
    await ask('/users/7/any', { method: 'PATCH' }),
    await ask('/users/7/any', { method: 'DELETE' }),
    await ask('/users/%C3%BC'),
    await ask('/users/%'),
  ],
  'no route': (ask) => ask('/nowhere'),
  HEAD: async (ask) => [
    await ask('/users/7', { method: 'HEAD' }),
    await ask('/public/file.txt', { method: 'HEAD' }),
  ],
  OPTIONS: (ask) => ask('/json', { method: 'OPTIONS' }),
  'JSON bodies': async (ask) => [
    await ask('/json', { method: 'POST', json: { a: [1, 'ü'] } }),
    await ask('/json', {
      method: 'POST',
      body: '{"a":1}',
      pieces: 3,
      headers: { 'content-type': 'application/json' },
    }),
    await ask('/json', {
      method: 'POST',
      body: '{',
      headers: { 'content-type': 'application/json' },
    }),
    await ask('/json', { method: 'POST', json: { long } }),
    await ask('/json', { method: 'POST' }),
  ],
  'other bodies': async (ask) => [
    await ask('/form', { method: 'POST', form: { 'a[b]': '1', c: 'ü' } }),
    await ask('/text', {
      method: 'POST',
      body: long,
      pieces: 4,
      headers: { 'content-type': 'text/plain' },
    }),
    await ask('/raw', {
      method: 'POST',
      body: Buffer.from([0, 1, 255]),
      headers: { 'content-type': 'image/png' },
    }),
  ],
  'properties of requests': (ask) =>
    ask('/request', {
      headers: {
        'x-forwarded-for': '192.0.2.1, 192.0.2.2',
        'x-requested-with': 'XMLHttpRequest',
        accept: 'application/json',
        'accept-language': 'en',
      },
    }),
  'headers, cookies and status of responses': (ask) => ask('/answer'),
  redirects: (ask) => ask('/redirect', { headers: { accept: 'text/html' } }),
  'content negotiation': async (ask) => [
    await ask('/format', { headers: { accept: 'application/json' } }),
    await ask('/format', { headers: { accept: 'image/png' } }),
  ],
  'no content': (ask) => ask('/status'),
  files: async (ask) => [await ask('/send-file'), await ask('/download')],
  'static files, ranges and conditions': async (ask) => {
    const { fields } = await ask('/public/file.txt');
    const conditions = [
      {},
      { range: 'bytes=10-19' },
      { range: 'bytes=-5' },
      { range: 'bytes=0-1,5-6' },
      { range: 'bytes=99999-' },
      { 'if-none-match': fields.etag },
      { 'if-modified-since': fields['last-modified'] },
      { 'if-match': '"other"' },
    ];
    const answers = [
      await ask('/public/'),
      await ask('/public'),
      await ask('/public/../program.js'),
    ];
    for (const headers of conditions) answers.push(await ask('/public/file.txt', { headers }));
    return answers;
  },
  'streamed responses': (ask) => ask('/stream'),
  'server-sent events': (ask) => ask('/events'),
  errors: async (ask) => [await ask('/throws'), await ask('/handled')],
};

module.exports = { covers: { express: 'framework' }, cases: { express: own } };
