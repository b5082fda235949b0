'use strict';

const {
  App,
  SSLApp,
  H3App,
  Server,
  us_listen_socket_close,
  us_socket_local_port,
  LISTEN_EXCLUSIVE_PORT,
} = require('./lib/app');
const { DeclarativeResponse } = require('./lib/declarative');
const { developmentCertificate } = require('./lib/development');
const { getParts } = require('./lib/multipart');
const compression = require('./lib/compression');

module.exports = {
  App,
  SSLApp,
  H3App,
  Server,
  us_listen_socket_close,
  us_socket_local_port,
  getParts,
  developmentCertificate,
  DeclarativeResponse,
  ...compression,
  LIBUS_LISTEN_DEFAULT: 0,
  LIBUS_LISTEN_EXCLUSIVE_PORT: LISTEN_EXCLUSIVE_PORT,
};
