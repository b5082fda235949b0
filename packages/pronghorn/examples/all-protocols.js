// HTTP/1.1, HTTP/2 and HTTP/3 on one port. `alt-svc` announces HTTP/3 to browsers.
const { Server } = require('pronghorn');

Server({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .get('/*', (res, req) => res.end(`hello over ${req.getProtocol()}`))
  .listen(Number(process.env.PORT ?? 8443), () => console.log('listening'));
