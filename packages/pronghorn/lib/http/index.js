'use strict';

// What programs take from node:http, with a server that speaks all protocols.

const http = require('node:http');
const { Server, createServer } = require('./server');

module.exports = {
  createServer,
  Server,
  METHODS: http.METHODS,
  STATUS_CODES: http.STATUS_CODES,
  IncomingMessage: http.IncomingMessage,
  ServerResponse: http.ServerResponse,
};
