// Compiled by `npm run lint`, never run: what programs write has to have types, and what is wrong has to have none.
import uWS = require('pronghorn');

const app: uWS.TemplatedApp = uWS
  .H3App({ key_file_name: './key.pem', cert_file_name: './cert.pem' })
  .get('/*', (res, req) => {
    const id: string | undefined = req.getParameter('id');
    res
      .writeStatus('200 OK')
      .writeHeader('x-id', id ?? 'none')
      .end(req.getQuery() + req.getServerName());
  })
  // The shortest handler returns what `end` does.
  .get('/short', (res) => res.end('short'))
  .post('/upload', async (res) => {
    res.onAborted(() => {
      res['aborted'] = true;
    });
    res.onData((chunk: ArrayBuffer, isLast: boolean) => {
      if (isLast) res.end(new Uint8Array(chunk));
    });
    await Promise.resolve();
  })
  .ws<{ user: string }>('/chat', {
    compression: uWS.SHARED_COMPRESSOR | uWS.DEDICATED_DECOMPRESSOR_4KB,
    upgrade: (res, req, context) =>
      res.upgrade({ user: req.getQuery() }, req.getHeader('sec-websocket-key'), '', '', context),
    open: (ws) => ws.subscribe('all'),
    message(ws, message, isBinary) {
      const result: number = ws.send(message, isBinary, true);
      const user: string = ws.user + ws.getUserData().user;
      void [result, user];
    },
    close: (ws, code: number) => ws.getTopics().length + code,
  })
  .any('/*', new uWS.DeclarativeResponse().write('hello').end())
  .listen(9004, (socket, error) => {
    if (socket) uWS.us_listen_socket_close(socket);
    else console.error(error?.message);
  });
const closed: Promise<void> = app.close({ timeout: 1000 });
const [ok, done]: [boolean, boolean] = ({} as uWS.HttpResponse).tryEnd('x', 1);
const parts: uWS.MultipartField[] | undefined = uWS.getParts('', '');
const certificate: uWS.DevelopmentCertificate = uWS.developmentCertificate({
  folder: './certificate',
});
uWS
  .Server({ ...certificate, server: certificate.validTo.toISOString() })
  .setCertificate(certificate);
const flags: string[] = certificate.chromiumFlags(8443);
void [flags, closed, ok, done, parts];

app.wt<{ user: string }>('/wt', {
  upgrade: (res, req, context) => res.upgrade({ user: req.getQuery() }, context),
  stream: (session, stream) => stream.pipe(session.createUnidirectionalStream()),
  datagram: (session, data) => session.sendDatagram(data) && session.user,
});
// @ts-expect-error no such handler
app.ws('/*', { mesage() {} });
// @ts-expect-error no such option
uWS.SSLApp({ key_file: 'x' });
// @ts-expect-error a handler is needed
app.get('/x');
// @ts-expect-error statuses are text
(({}) as uWS.HttpResponse).writeStatus(404);
