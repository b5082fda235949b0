'use strict';

// Upgrade requests for listeners of 'upgrade', in the form of HTTP/1.1 for all versions.

const { randomBytes } = require('node:crypto');
const native = require('../native');
const { warnOnce } = require('../errors');
const { Socket } = require('./socket');
const { UpgradeSocket } = require('./tunnel');
const { makeRequest } = require('./incoming');

const KEY_BYTES = 16;

/**
 * Returns the head of an extended CONNECT (RFC 8441, RFC 9220) as the equivalent HTTP/1.1 upgrade
 * request.
 */
function asHttp1(head, protocol) {
  const lines = [...head.lines(), 'connection', 'Upgrade', 'upgrade', protocol];
  // WebSocket libraries require a key, which has no meaning here.
  if (protocol === 'websocket' && head.first('sec-websocket-key') === undefined) {
    lines.push('sec-websocket-key', randomBytes(KEY_BYTES).toString('base64'));
  }
  return { version: head.version, method: 'GET', target: head.target, lines: () => lines };
}

/** Emits 'upgrade' for a request. */
function handleUpgrade(server, res, head) {
  const protocol = native.upgradeProtocol(res._slot);
  if (head.version !== 1 && protocol === 'webtransport') {
    warnOnce(
      "WebTransport sessions are not passed to listeners of 'upgrade': add a route with server.app.wt()",
    );
    res.writeStatus('501 Not Implemented').end();
    return;
  }
  const socket = new UpgradeSocket(new Socket(head, res, server), protocol.toLowerCase());
  if (head.version !== 1) socket._head = asHttp1(head, protocol);
  const request = makeRequest(server._IncomingMessage, socket, false);
  // The request has no body, and destroying it destroys the socket.
  delete request._destroy;
  request.joinDuplicateHeaders = server._joinsDuplicates;
  request.upgrade = true;
  res.onAborted(() => socket._left());
  if (server.timeout > 0) socket.setTimeout(server.timeout);
  try {
    server.emit('upgrade', request, socket, Buffer.alloc(0));
  } catch (error) {
    socket._fail();
    throw error;
  }
}

module.exports = { handleUpgrade };
