'use strict';

// Loaded before each of Fastify's tests: replaces its servers with pronghorn's.

const http = require('node:http');
const https = require('node:https');
const { createServer } = require('../../lib/http');

http.createServer = createServer;
https.createServer = createServer;
