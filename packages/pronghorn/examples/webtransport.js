// Echoes WebTransport streams and datagrams over HTTP/3.
const { H3App } = require('pronghorn');

H3App({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .wt('/echo', {
    stream: (session, stream) =>
      stream.pipe(stream.writable ? stream : session.createUnidirectionalStream()),
    datagram: (session, data) => session.sendDatagram(data),
  })
  .listen(Number(process.env.PORT ?? 9004), () => console.log('listening'));
