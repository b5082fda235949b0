'use strict';

// What programs take from @hono/node-server.

const { serve } = require('./index');

/** The helper of Hono that says who asks. */
const getConnInfo = (c) => {
  const { address, port, family } = c.env.remote;
  return { remote: { address, port, addressType: family } };
};

module.exports = { serve, getConnInfo };
