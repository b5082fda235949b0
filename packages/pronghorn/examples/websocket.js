// WebSocket over HTTP/1.1, HTTP/2 and HTTP/3 on one port: each message goes to all clients.
const { Server } = require('pronghorn');

const app = Server({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .ws('/*', {
    open: (ws) => ws.subscribe('all'),
    message: (_ws, message) => app.publish('all', message),
  })
  .listen(Number(process.env.PORT ?? 9001), () => console.log('listening'));
