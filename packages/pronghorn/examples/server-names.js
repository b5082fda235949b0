// Two sites with their own certificates and routes, and certificates that are loaded when a client
// first asks for their name.
const { SSLApp } = require('pronghorn');

const tls = { key_file_name: './key.pem', cert_file_name: './cert.pem' };
const app = SSLApp(tls)
  .addServerName('blog.example', tls)
  .missingServerName((name) => {
    if (name.endsWith('.example')) app.addServerName(name, tls);
  })
  .get('/*', (res) => res.end('everything else'))
  .domain('blog.example')
  .get('/*', (res) => res.end('the blog'))
  .listen(Number(process.env.PORT ?? 8443), () => console.log('listening'));
