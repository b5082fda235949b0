'use strict';

// The connections to a framework's server: cleartext, and TLS over each protocol.

const { faces, overHttp2, overHttp3, secure } = require('./clients');
const { tls } = require('./certificate');

const ways = [
  { name: 'HTTP/1.1 in clear text', protocol: 'http/1.1', options: {}, request: faces[0].request },
  { name: 'HTTP/1.1', protocol: 'http/1.1', options: tls, request: secure },
  { name: 'HTTP/2', protocol: 'h2', options: tls, request: overHttp2 },
  { name: 'HTTP/3', protocol: 'h3', options: tls, request: overHttp3 },
];

/** An event that happens once, to wait for. */
function happening() {
  let happen;
  const promise = new Promise((resolve) => (happen = resolve));
  return { promise, happen };
}

module.exports = { ways, happening };
