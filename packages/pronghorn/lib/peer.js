'use strict';

// The client of a WebSocket connection or WebTransport session.

const native = require('./native');
const { textBuffer } = require('./text');

class Peer {
  /** `remote`: address and port, read before the request ended. */
  constructor(remote) {
    this._remote = remote;
  }

  /** Returns the user data of `res.upgrade`, whose properties the connection itself has. */
  getUserData() {
    return this;
  }

  getRemoteAddress() {
    return native.addressBytes(this._remote.address);
  }

  getRemoteAddressAsText() {
    return textBuffer(this._remote.address);
  }

  getRemotePort() {
    return this._remote.port;
  }
}

module.exports = { Peer };
