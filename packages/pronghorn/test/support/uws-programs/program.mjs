// Written for uWebSockets.js, without anything specific to pronghorn.

import uWS, { us_listen_socket_close, us_socket_local_port } from 'uWebSockets.js';

const [kind] = process.argv.slice(2);
let listenSocket;

uWS[kind]({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .get('/*', (res, req) =>
    res.writeHeader('x-method', req.getMethod()).end(`H3llo World from Node.js! ${req.getUrl()}`),
  )
  .listen(0, (token) => {
    listenSocket = token;
    console.log(token ? `listening ${us_socket_local_port(token)}` : 'failed to listen');
  });

process.on('SIGTERM', () => us_listen_socket_close(listenSocket));
