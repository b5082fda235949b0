'use strict';

const { cases } = require('./next');

const { 'route handlers': handlers } = cases.next;
const page = async (ask) => {
  const { status, fields, body } = await ask('/?name=Ada', { headers: { 'user-agent': 'compat' } });
  return [status, fields['content-type'], body.includes('hello Ada, compat')];
};

module.exports = {
  program: 'next',
  env: { NODE_ENV: 'development' },
  covers: { 'next (development)': 'meta-framework' },
  cases: {
    'next (development)': { 'a page with a query and a header': page, 'route handlers': handlers },
  },
};
