'use strict';

const { assets, text } = require('../support/pages');

const own = {
  'a page with a query, a header and a cookie': async (ask) => {
    const headers = { 'user-agent': 'compat' };
    await ask('/api', { jar: true });
    const answers = [await ask('/?name=Ada', { headers }), await ask('/', { headers, jar: true })];
    return answers.map(({ status, fields, body }) => [status, fields, /<p>.*?<\/p>/.exec(body)[0]]);
  },
  'its scripts': async (ask) => assets(ask, (await ask('/')).body),
  'files of public': async (ask) => [
    await ask('/file.txt'),
    await ask('/file.txt', { headers: { range: 'bytes=1-2' } }),
  ],
  'route handlers': async (ask) => [
    await ask('/api?a=1'),
    await ask('/api', { method: 'POST', body: 'x'.repeat(100_000), pieces: 4 }),
    await ask('/api', { method: 'DELETE' }),
    await ask('/api', { method: 'HEAD' }),
  ],
  'pages that stream': async (ask) => {
    const { status, body } = await ask('/slow');
    return [status, body.includes('waiting'), body.includes('late')];
  },
  'server actions': async (ask) => {
    const { body } = await ask('/form');
    const action = /name="(\$ACTION_ID_[0-9a-f]+)"/.exec(body)[1];
    const form = `--b\r\ncontent-disposition: form-data; name="${action}"\r\n\r\n\r\n--b\r\ncontent-disposition: form-data; name="name"\r\n\r\nAda\r\n--b--\r\n`;
    const headers = { 'content-type': 'multipart/form-data; boundary=b' };
    const answer = await ask('/form', { method: 'POST', body: form, headers });
    return [answer.status, answer.fields.location];
  },
  'navigation within the application': async (ask) => {
    const { status, fields } = await ask('/slow?_rsc=1', { headers: { rsc: '1' } });
    return [status, fields['content-type']];
  },
  'no page': async (ask) => text(await ask('/nowhere')),
};

module.exports = {
  covers: { next: 'meta-framework' },
  build: [['next', 'build']],
  cases: { next: own },
};
