'use strict';

// What programs take from node:http, with a server that speaks all protocols.

const { METHODS, STATUS_CODES, IncomingMessage, ServerResponse } = require('node:http');
const { Server, createServer } = require('./server');

// Names alone: others are not seen by `import { … }`.
module.exports = { createServer, Server, METHODS, STATUS_CODES, IncomingMessage, ServerResponse };
