'use strict';

const { files, hello, host, limits, port, protocol } = require('./arguments.cjs');
const { App, H3App, Server } = require('../../../packages/pronghorn');

const app = {
  'h1-clear': () => App({ limits }),
  h2: () => Server({ ...files, limits }),
  h3: () => H3App({ ...files, limits }),
};

app[protocol]()
  .get('/:file', (res) => res.end(hello))
  .listen(host, port, (_socket, error) => {
    if (error) throw error;
  });
