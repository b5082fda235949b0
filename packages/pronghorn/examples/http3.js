// HTTP/3. The other examples run over it as well: replace App by H3App.
const { H3App } = require('pronghorn');

H3App({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .get('/*', (res, req) => res.end(`hello over ${req.getProtocol()}`))
  .listen(Number(process.env.PORT ?? 9004), () => console.log('listening'));
