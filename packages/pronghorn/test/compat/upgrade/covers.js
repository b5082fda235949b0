'use strict';

/** What upgrade.test.js tries of each package, for docs/node/compatibility.md. */
module.exports = {
  ws: 'an echo',
  'express-ws': 'an echo',
  '@fastify/websocket': 'an echo, and paths without one',
  'http-proxy': 'proxied WebSocket connections',
  'socket.io': 'polling, WebSocket, the upgrade from polling, and broadcasts',
};
