// A server on node:http that records how it interprets each request, in two representations: FILE.
'use strict';

const fs = require('node:fs');
const http = require('node:http');

const file = fs.openSync(process.argv[2], 'a');
const hex = (text) => Buffer.from(text, 'utf8').toString('hex');

const server = http.createServer((request, response) => {
  const { headers } = request;
  const target = headers['x-original-url'] ?? headers['x-rewrite-url'] ?? request.url;
  let paths, segments;
  try {
    // Express decodes its routers' matches like this, and many applications compare the path like this.
    paths = [hex(decodeURIComponent(target.split('?')[0]))];
    const { pathname } = new URL(target, 'http://localhost');
    segments = [pathname.split('/').slice(1).map((segment) => hex(decodeURIComponent(segment)))];
  } catch {
    response.writeHead(400).end('not understood');
    return;
  }
  const override = headers['x-http-method-override'] ?? headers['x-http-method'] ?? headers['x-method-override'];
  const seen = {
    number: headers['x-number'],
    route: headers['x-route'],
    method: override ?? request.method,
    hosts: [headers.host, headers['x-forwarded-host']].filter((host) => host !== undefined),
    paths,
    segments,
  };
  fs.writeSync(file, JSON.stringify(seen) + '\n');
  response.end('understood');
});

server.listen(0, '127.0.0.1', () => console.error(`listening on http://127.0.0.1:${server.address().port}`));
