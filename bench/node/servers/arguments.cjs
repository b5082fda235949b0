'use strict';

// What the bench says to a server: MODULES PROTOCOL HANDLER PORT CERTIFICATE KEY [LIMIT=VALUE…]

const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');

const [modules, protocol, handler, port, certificate, key, ...limits] = process.argv.slice(2);

module.exports = {
  protocol,
  handler,
  port: Number(port),
  host: '127.0.0.1',
  files: { key_file_name: key, cert_file_name: certificate },
  pem: () => ({ key: fs.readFileSync(key), cert: fs.readFileSync(certificate) }),
  limits: Object.fromEntries(limits.map((limit) => limit.split('='))),
  /** Of what the set-up of the bench has installed. */
  require: createRequire(path.join(path.dirname(modules), 'package.json')),
  /** What every handler answers, to a route with a parameter where there are routes. */
  hello: 'Hello, World!',
};
