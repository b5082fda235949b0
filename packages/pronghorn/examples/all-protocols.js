// HTTP/1.1, 2 and 3 on one port; browsers learn of HTTP/3 by alt-svc.
const { Server } = require('pronghorn');

Server({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .get('/*', (res, req) => res.end(`hello over ${req.getProtocol()}`))
  .listen(Number(process.env.PORT ?? 8443), () => console.log('listening'));
