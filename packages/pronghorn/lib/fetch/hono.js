'use strict';

// The interface of @hono/node-server.

const { serve } = require('./index');

/** Returns the client's address, like the ConnInfo helpers of Hono. */
const getConnInfo = (c) => {
  const { address, port, family } = c.env.remote;
  return { remote: { address, port, addressType: family } };
};

module.exports = { serve, getConnInfo };
