'use strict';

// Written for uWebSockets.js, without anything specific to pronghorn.

const uWS = require('uWebSockets.js');

const users = new Map([['7', { name: 'Ada' }]]);
let listenSocket;

function readJson(res, callback) {
  let buffer = Buffer.alloc(0);
  res.onData((chunk, isLast) => {
    // The chunk is detached when this function returns.
    buffer = Buffer.concat([buffer, Buffer.from(chunk)]);
    if (isLast) callback(JSON.parse(buffer));
  });
}

uWS
  .App()
  .get('/users/:id', (res, req) => {
    const user = users.get(req.getParameter(0));
    if (user === undefined) return res.writeStatus('404 Not Found').end();
    res
      .writeHeader('Content-Type', 'application/json')
      .end(JSON.stringify({ ...user, page: req.getQuery('page') }));
  })
  .post('/users', (res) => {
    res.onAborted(() => console.error('aborted'));
    readJson(res, ({ id, name }) => {
      users.set(id, { name });
      res.cork(() => res.writeStatus('201 Created').end('created'));
    });
  })
  .get('/later', async (res, req) => {
    const agent = req.getHeader('user-agent');
    let isAborted = false;
    res.onAborted(() => (isAborted = true));
    await new Promise((resolve) => setImmediate(resolve));
    if (!isAborted) res.cork(() => res.end(`later, ${agent}`));
  })
  .any('/*', (res) => res.end('nothing to see here'))
  .listen(0, (token) => {
    listenSocket = token;
    console.log(token ? `listening ${uWS.us_socket_local_port(token)}` : 'failed to listen');
  });

process.on('SIGTERM', () => uWS.us_listen_socket_close(listenSocket));
