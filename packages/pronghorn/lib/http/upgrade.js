'use strict';

// Requests that ask for another protocol, for listeners of 'upgrade': as over HTTP/1.1, whatever brought them.

const { randomBytes } = require('node:crypto');
const native = require('../native');
const { warnOnce } = require('../errors');
const { Socket } = require('./socket');
const { UpgradeSocket } = require('./tunnel');
const { makeRequest } = require('./incoming');

const KEY_BYTES = 16;

/** What `makeRequest` takes of a head: that of an extended CONNECT (RFC 8441, RFC 9220) as one over HTTP/1.1 asks for the same. */
function asHttp1(head, protocol) {
  const lines = [...head.lines(), 'connection', 'Upgrade', 'upgrade', protocol];
  // Who grants it looks for a key, which proves nothing here.
  if (protocol === 'websocket' && head.first('sec-websocket-key') === undefined) {
    lines.push('sec-websocket-key', randomBytes(KEY_BYTES).toString('base64'));
  }
  return { version: head.version, method: 'GET', target: head.target, lines: () => lines };
}

/** Emits 'upgrade' for a request. */
function handleUpgrade(server, res, head) {
  const protocol = native.upgradeProtocol(res._slot);
  if (head.version !== 1 && protocol === 'webtransport') {
    warnOnce("WebTransport sessions are not passed to listeners of 'upgrade': add a route with server.app.wt().");
    res.writeStatus('501 Not Implemented').end();
    return;
  }
  const socket = new UpgradeSocket(new Socket(head, res, server), protocol.toLowerCase());
  if (head.version !== 1) socket._head = asHttp1(head, protocol);
  const request = makeRequest(server._IncomingMessage, socket, false);
  // Its content is none, and whoever destroys it destroys the socket.
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
