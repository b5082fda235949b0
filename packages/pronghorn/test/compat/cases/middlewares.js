'use strict';

/** A form with files, as browsers send it. */
function multipart(files, fields = {}) {
  const boundary = '----compat';
  const parts = [];
  for (const [name, value] of Object.entries(fields)) {
    parts.push(
      `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
  }
  for (const [name, { filename, content }] of Object.entries(files)) {
    const head = `content-disposition: form-data; name="${name}"; filename="${filename}"\r\ncontent-type: text/plain`;
    parts.push(`--${boundary}\r\n${head}\r\n\r\n${content}\r\n`);
  }
  parts.push(`--${boundary}--\r\n`);
  return {
    method: 'POST',
    body: parts.join(''),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

const small = multipart(
  { file: { filename: 'a.txt', content: 'x'.repeat(1000) } },
  { title: 'ü', other: '2' },
);
const large = multipart({ file: { filename: 'b.txt', content: 'y'.repeat(300_000) } });
/** Uploads whole, in pieces, too large, and cut off. */
const upload = (name) => ({
  uploads: async (ask) => [
    await ask(`/${name}`, small),
    await ask(`/${name}`, { ...small, pieces: 7 }),
  ],
  'a file over the size limit': async (ask) =>
    statusAndBody(await ask(`/${name}`, { ...large, pieces: 5 })),
  'a truncated form': (ask) => ask(`/${name}`, { ...small, body: small.body.slice(0, -40) }),
});
const statusAndBody = ({ status, body }) => ({ status, body });
const withoutCookies = (answer) => ({
  ...answer,
  fields: { ...answer.fields, 'set-cookie': undefined },
});
const namesOfCookies = ({ fields }) =>
  String(fields['set-cookie'])
    .replace(/=[^;]*;/g, '=;')
    .replace(/Expires=[^;]*/g, '');

const cases = {
  'body-parser': {
    'JSON, forms, text and bytes': async (ask) => [
      await ask('/body-parser', { method: 'POST', json: { a: 1 } }),
      await ask('/body-parser', { method: 'POST', form: { a: '1', b: ['2'] } }),
      await ask('/body-parser', {
        method: 'POST',
        body: 'text',
        headers: { 'content-type': 'text/plain' },
      }),
      await ask('/body-parser', {
        method: 'POST',
        body: 'b',
        headers: { 'content-type': 'application/octet-stream' },
      }),
    ],
    'rejected bodies': async (ask) => [
      await ask('/body-parser', { method: 'POST', json: { long: 'x'.repeat(2000) } }),
      await ask('/body-parser', {
        method: 'POST',
        body: '{',
        headers: { 'content-type': 'application/json' },
      }),
      await ask('/body-parser', {
        method: 'POST',
        body: '{}',
        headers: { 'content-type': 'application/json; charset=none' },
      }),
    ],
    'compressed bodies': (ask) =>
      ask('/body-parser', {
        method: 'POST',
        body: require('node:zlib').gzipSync('{"zipped":true}'),
        headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' },
      }),
  },
  busboy: upload('busboy'),
  compression: {
    'gzip, brotli and none': async (ask) => [
      await ask('/compression', { headers: { 'accept-encoding': 'gzip' } }),
      await ask('/compression', { headers: { 'accept-encoding': 'br' } }),
      await ask('/compression'),
      await ask('/compression', { method: 'HEAD', headers: { 'accept-encoding': 'gzip' } }),
    ],
    flush: (ask) => ask('/compression/flushed', { headers: { 'accept-encoding': 'gzip' } }),
  },
  'connect-timeout': {
    'a response in time, and one too late': async (ask) => [
      await ask('/connect-timeout'),
      await ask('/connect-timeout/slow'),
    ],
  },
  'cookie-parser': {
    'plain, signed and JSON cookies': async (ask) => [
      await ask('/cookie-parser', { jar: true }),
      await ask('/cookie-parser', { jar: true }),
      await ask('/cookie-parser', { headers: { cookie: 'a=1; signed=s%3Awrong' } }),
    ],
  },
  cors: {
    'simple requests and preflights': async (ask) => {
      const preflight = {
        method: 'OPTIONS',
        headers: {
          origin: 'https://a.example',
          'access-control-request-method': 'PUT',
          'access-control-request-headers': 'x-a',
        },
      };
      return [
        await ask('/cors/all'),
        await ask('/cors', { headers: { origin: 'https://a.example' } }),
        await ask('/cors', { headers: { origin: 'https://b.example' } }),
        await ask('/cors', preflight),
      ];
    },
  },
  'csrf-csrf': {
    'a valid token, a wrong one, and none': async (ask) => {
      const answer = await ask('/csrf-csrf/token', { jar: true });
      const { token } = JSON.parse(answer.body);
      return [
        answer.status,
        await ask('/csrf-csrf', { method: 'POST', jar: true, headers: { 'x-csrf-token': token } }),
        await ask('/csrf-csrf', {
          method: 'POST',
          jar: true,
          headers: { 'x-csrf-token': 'wrong' },
        }),
        await ask('/csrf-csrf', { method: 'POST' }),
      ];
    },
  },
  errorhandler: {
    'text, HTML and JSON': async (ask) => [
      await ask('/errorhandler'),
      await ask('/errorhandler', { headers: { accept: 'text/html' } }),
      await ask('/errorhandler', { headers: { accept: 'application/json' } }),
    ],
  },
  'express-fileupload': upload('express-fileupload'),
  'express-rate-limit': {
    'a client over the rate limit': async (ask) => {
      const answers = [];
      for (let at = 0; at < 3; at++) answers.push(await ask('/express-rate-limit'));
      return answers.map(({ status, body, fields }) => [
        status,
        body,
        fields.ratelimit?.replace(/reset=\d+/, ''),
      ]);
    },
  },
  'express-session': {
    'a session that is stored and destroyed': async (ask) => {
      const answers = [];
      for (const target of ['/', '/', '/leave', '/']) {
        const answer = await ask(`/express-session${target}`, { jar: true });
        answers.push(withoutCookies(answer), namesOfCookies(answer));
      }
      return answers;
    },
  },
  'express-validator': {
    'valid and invalid input': async (ask) => [
      await ask('/express-validator?page=2', { method: 'POST', json: { mail: 'A@Example.com' } }),
      await ask('/express-validator?page=0', { method: 'POST', json: { mail: 'none' } }),
    ],
  },
  formidable: upload('formidable'),
  helmet: { 'its headers': (ask) => ask('/helmet') },
  hpp: {
    'repeated parameters': (ask) =>
      ask('/hpp', {
        method: 'POST',
        body: 'a=1&a=2&b=3',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
      }),
  },
  'http-proxy-middleware': {
    'requests, bodies and headers': async (ask) => [
      await ask('/http-proxy-middleware/a/x?q=1'),
      await ask('/http-proxy-middleware/a/gone', { method: 'DELETE' }),
      await ask('/http-proxy-middleware/x', {
        method: 'POST',
        body: 'x'.repeat(100_000),
        pieces: 4,
      }),
      await ask('/http-proxy-middleware/x', { method: 'HEAD' }),
    ],
    'bodies that were parsed earlier': async (ask) => [
      await ask('/http-proxy-middleware/parsed', { method: 'POST', json: { parsed: true } }),
      // Without a length, and with one of its own beside it, it is refused by the upstream: over
      // every protocol.
      await ask('/http-proxy-middleware/parsed', {
        method: 'POST',
        json: { parsed: true },
        pieces: 2,
      }),
    ],
    'an upstream that refuses connections': (ask) => ask('/http-proxy-middleware/refused'),
  },
  'method-override': {
    'an overridden method': async (ask) => [
      await ask('/method-override', {
        method: 'POST',
        headers: { 'x-http-method-override': 'DELETE' },
      }),
      await ask('/method-override', { method: 'POST' }),
    ],
  },
  morgan: {
    'log lines': async (ask) => {
      const headers = { referer: 'https://example.com/', 'user-agent': 'compat' };
      const answers = [await ask('/morgan/page?a=1', { headers }), await ask('/morgan/next')];
      return [...answers, await ask('/morgan/missing', { headers }), await ask('/morgan/next')];
    },
  },
  multer: upload('multer'),
  'on-finished': {
    'the end of a response': async (ask) => [
      await ask('/on-finished'),
      await ask('/on-finished/next'),
    ],
  },
  'on-headers': {
    'headers that are set late': async (ask) => [
      await ask('/on-headers'),
      await ask('/on-headers/written'),
    ],
  },
  passport: { 'a user who is not logged in': (ask) => ask('/passport/me') },
  'passport-local': {
    'a wrong and a right password, and logging out': async (ask) => {
      const login = (password) => ({
        method: 'POST',
        jar: true,
        form: { username: 'ada', password },
      });
      const answers = [
        await ask('/passport/login', login('wrong')),
        await ask('/passport/login', login('right')),
        await ask('/passport/me', { jar: true }),
        await ask('/passport/logout', { method: 'POST', jar: true }),
        await ask('/passport/me', { jar: true }),
      ];
      return answers.map(withoutCookies);
    },
  },
  'pino-http': {
    'log lines': async (ask) => {
      const answers = [await ask('/pino-http/page'), await ask('/pino-http/next')];
      return [...answers, await ask('/pino-http/fails'), await ask('/pino-http/next')];
    },
  },
  'response-time': {
    'a header with the time': async (ask) => {
      const { status, fields } = await ask('/response-time');
      return [status, /^\d+ms$/.test(fields['x-response-time'])];
    },
  },
  'serve-index': {
    'as HTML, JSON and text': async (ask) => [
      await ask('/serve-index', { headers: { accept: 'text/html' } }),
      await ask('/serve-index/inner', { headers: { accept: 'application/json' } }),
      await ask('/serve-index/', { headers: { accept: 'text/plain' } }),
      await ask('/serve-index/nowhere'),
    ],
  },
  'serve-static': {
    'files, ranges and redirects': async (ask) => [
      await ask('/serve-static/first'),
      await ask('/serve-static/inner'),
      await ask('/serve-static/first.txt', { headers: { range: 'bytes=1-2' } }),
      await ask('/serve-static/first.txt', { method: 'POST' }),
      await ask('/serve-static/..%2fprogram.js'),
    ],
  },
  'swagger-ui-express': {
    'its page and files': async (ask) => [
      await ask('/swagger-ui-express/'),
      await ask('/swagger-ui-express/swagger-ui-init.js'),
      statusAndBody(await ask('/swagger-ui-express/swagger-ui.css')),
    ],
  },
  vhost: {
    'host names': async (ask) => [
      await ask('/vhost', { host: 'a.example.com' }),
      await ask('/vhost', { host: 'a.example.com:8080' }),
      await ask('/vhost', { host: 'example.org' }),
    ],
  },
};

module.exports = {
  covers: Object.fromEntries(Object.keys(cases).map((name) => [name, 'middleware'])),
  notes: {
    'http-proxy-middleware':
      'a body that was parsed before and came without `content-length`: it is refused by the upstream, as over `node:http`',
  },
  cases,
};
