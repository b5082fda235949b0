// Uses a development certificate, which is created on first use and kept. Browsers accept it by its
// hash.
const { Server, developmentCertificate } = require('pronghorn');

const port = Number(process.env.PORT ?? 8443);
const certificate = developmentCertificate();
Server(certificate)
  .get('/*', (res, req) => res.end(`hello over ${req.getProtocol()}`))
  .listen(port, () => {
    console.log(
      `listening. To see it: chromium ${certificate.chromiumFlags(port).join(' ')} https://localhost:${port}/`,
    );
  });
