'use strict';

// node:http and node:http2, and Express on the former.

const http = require('node:http');
const http2 = require('node:http2');
const { handler, hello, host, pem, port, protocol, require: installed } = require('./arguments.cjs');

function application() {
  if (handler !== 'express') return (_request, response) => response.end(hello);
  process.env.NODE_ENV = 'production';
  return installed('express')().get('/:file', (_request, response) => response.send(hello));
}

const server = protocol === 'h2' ? http2.createSecureServer(pem(), application()) : http.createServer(application());
server.listen(port, host);
