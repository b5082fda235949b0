'use strict';

const { hello, host, port, require: installed } = require('./arguments.cjs');

installed('@trufflesuite/uws-js-unofficial')
  .App()
  .get('/:file', (res) => res.end(hello))
  .listen(host, port, (socket) => {
    if (!socket) throw new Error(`port ${port} is taken`);
  });
