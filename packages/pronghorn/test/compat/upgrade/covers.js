'use strict';

/** What upgrade.test.js tries of each package, for docs/node/compatibility.md. */
module.exports = {
  ws: 'an echo',
  'express-ws': 'an echo',
  '@fastify/websocket': 'an echo, and paths that have none',
  'http-proxy': 'WebSocket connections that are passed on',
  'socket.io': 'polling, WebSocket, from one to the other, and broadcasts',
};
