import pronghorn from './index.js';

export default pronghorn;
export const {
  App,
  SSLApp,
  H3App,
  Server,
  us_listen_socket_close,
  us_socket_local_port,
  getParts,
  developmentCertificate,
  DeclarativeResponse,
  LIBUS_LISTEN_DEFAULT,
  LIBUS_LISTEN_EXCLUSIVE_PORT,
} = pronghorn;
