'use strict';

// The interface of node:http, with a server that speaks all protocols.

const { METHODS, STATUS_CODES, IncomingMessage, ServerResponse } = require('node:http');
const { Server, createServer } = require('./server');

// A literal list of names, because `import { … }` detects no others.
module.exports = { createServer, Server, METHODS, STATUS_CODES, IncomingMessage, ServerResponse };
