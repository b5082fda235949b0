'use strict';

// Who is at the other end of what goes on after an upgrade: a WebSocket connection, a WebTransport session.

const native = require('./native');
const { textBuffer } = require('./text');

class Remote {
  /** `remote`: address and port, read while the request was there. */
  constructor(remote) {
    this._remote = remote;
  }

  /** What `res.upgrade` was given: the connection itself has it. */
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

module.exports = { Remote };
