// Replaces the certificate of a running server on SIGHUP, from PEM in memory.
const { readFileSync } = require('node:fs');
const { SSLApp } = require('pronghorn');

const read = () => ({ key: readFileSync('./key.pem'), cert: readFileSync('./cert.pem') });
const app = SSLApp(read())
  .get('/*', (res) => res.end('hello'))
  .listen(Number(process.env.PORT ?? 8443), () => console.log('listening'));

process.on('SIGHUP', () => app.setCertificate(read()));
