'use strict';

// Our own routes, and what the frameworks' doors are measured by: Hono on the fetch handler, Express on the shape of node:http.

const { createRequire } = require('node:module');
const { files, handler, hello, host, limits, port, protocol, require: installed } = require('./arguments.cjs');

const own = createRequire(require.resolve('../../../packages/pronghorn/package.json'));
const { App, H3App, Server } = own('pronghorn');

const kinds = {
  'h1-clear': () => App({ limits }),
  h2: () => Server({ ...files, limits }),
  h3: () => H3App({ ...files, limits }),
};

const applications = {
  raw: () => kinds[protocol]().get('/:file', (res) => res.end(hello)),
  hono: () => {
    const { Hono } = installed('hono');
    const { fetchHandler, overrideGlobals } = own('pronghorn/fetch');
    overrideGlobals();
    const hono = new Hono().get('/:file', (context) => context.text(hello));
    return kinds[protocol]().any('/*', fetchHandler(hono.fetch));
  },
  express: () => {
    process.env.NODE_ENV = 'production';
    const express = installed('express')().get('/:file', (_request, response) => response.send(hello));
    return own('pronghorn/http').createServer(express);
  },
};

const application = applications[handler]();
if (handler === 'express') application.listen(port, host);
else
  application.listen(host, port, (_socket, error) => {
    if (error) throw error;
  });
