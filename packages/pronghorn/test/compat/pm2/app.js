'use strict';
// A server that PM2 runs in cluster mode, as its documentation wants them: it finishes what runs
// when PM2 asks it to end.

const fs = require('node:fs');
const { createServer } = require(process.env.PRONGHORN_HTTP);

const { key_file_name: key, cert_file_name: cert } = JSON.parse(process.env.PRONGHORN_TEST_TLS);
const server = createServer(
  { key: fs.readFileSync(key), cert: fs.readFileSync(cert) },
  (req, res) => {
    setTimeout(() => res.end(`${process.pid}`), 5);
  },
);
server.listen(0, '127.0.0.1', () => {
  // Whole, or not at all.
  fs.writeFileSync(`${process.env.PORT_FILE}.${process.pid}`, `${server.address().port}`);
  fs.renameSync(`${process.env.PORT_FILE}.${process.pid}`, process.env.PORT_FILE);
});
process.on('SIGINT', () => server.close(() => process.exit(0)));
