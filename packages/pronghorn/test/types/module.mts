import uWS, { App, type HttpRequest, type HttpResponse } from 'pronghorn';

function handler(res: HttpResponse, req: HttpRequest): void {
  const protocol: 'http/1.1' | 'h2' | 'h3' = req.getProtocol();
  res.end(protocol);
}

App()
  .get('/', handler)
  .listen('::1', 3000, uWS.LIBUS_LISTEN_EXCLUSIVE_PORT, () => {});
uWS
  .Server({ limits: { request_body_bytes: 1 }, without_certificate: true })
  .missingServerName((name: string) => void name);
