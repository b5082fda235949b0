'use strict';

// Four independent clients for the same handlers: node:http, node:https, node:http2 and aioquic.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const http = require('node:http');
const http2 = require('node:http2');
const https = require('node:https');
const net = require('node:net');
const uWS = require('../..');
const h3 = require('./h3');
const { tls } = require('./certificate');

/** Headers that depend on the connection or the time. */
const incidental = [
  'date',
  'alt-svc',
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
];

function fieldsOf(pairs) {
  const fields = {};
  for (const [name, value] of pairs) {
    if (incidental.includes(name.toLowerCase()) || name.startsWith(':')) continue;
    fields[name.toLowerCase()] =
      name.toLowerCase() in fields ? `${fields[name.toLowerCase()]}, ${value}` : value;
  }
  return fields;
}

function pairsOf(raw) {
  const pairs = [];
  for (let index = 0; index < raw.length; index += 2) pairs.push([raw[index], raw[index + 1]]);
  return pairs;
}

/**
 * Writes a body in pieces, each after the previous one was sent. `late` follows when the response
 * is complete.
 */
async function send(stream, { body, pieces = 1, unfinished, late }) {
  if (body === undefined) return stream.end();
  const content = Buffer.from(body);
  const size = Math.max(1, Math.ceil(content.length / pieces));
  for (let at = 0; at < content.length; at += size) {
    await new Promise((resolve) => stream.write(content.subarray(at, at + size), resolve));
  }
  if (!unfinished && late === undefined) stream.end();
}

/** TLS options of a client: files with its certificate and key, and options of node:tls. */
function shown({ key_file_name: key, cert_file_name: cert, ...more } = {}) {
  return key === undefined
    ? more
    : { key: fs.readFileSync(key), cert: fs.readFileSync(cert), ...more };
}

function overHttp1(module, options) {
  return (
    port,
    {
      method = 'GET',
      path = '/',
      headers = {},
      host = 'localhost',
      abort,
      address = '127.0.0.1',
      client,
      ...content
    } = {},
  ) =>
    new Promise((resolve) => {
      const informational = [];
      const own = { ...options, ...shown(client) };
      const settings = {
        ...own,
        host: address,
        port,
        method,
        path,
        headers: { host, ...headers },
        agent: false,
      };
      const { body, late } = content;
      // A connection that is to be closed is closed with the response.
      if (late !== undefined) settings.agent = new module.Agent({ keepAlive: true });
      if (body !== undefined && content.pieces === undefined && !content.unfinished) {
        settings.headers['content-length'] = Buffer.byteLength(body) + (late?.length ?? 0);
      }
      const request = module.request(settings, (response) => {
        const chunks = [];
        const answer = {
          status: response.statusCode,
          fields: fieldsOf(pairsOf(response.rawHeaders)),
          raw: response.headers,
          informational,
        };
        if (abort === 'head' || abort === 'connection') {
          request.destroy();
          return resolve({ aborted: true, ...answer });
        }
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', (error) =>
          resolve({ ...answer, error: error.message, body: Buffer.concat(chunks) }),
        );
        response.on('end', () => {
          const whole = { ...answer, body: Buffer.concat(chunks) };
          if (late === undefined) return resolve(whole);
          request.on('close', () => settings.agent.destroy());
          request.end(late, () => resolve(whole));
        });
      });
      request.on('information', (info) =>
        informational.push({ status: info.statusCode, fields: fieldsOf(pairsOf(info.rawHeaders)) }),
      );
      request.on('error', (error) =>
        resolve(abort === 'now' ? { aborted: true } : { error: error.message, informational }),
      );
      send(request, content).catch(() => {});
      if (abort === 'now') {
        request.flushHeaders();
        request.on('socket', (socket) =>
          socket.once(options.rejectUnauthorized === undefined ? 'connect' : 'secureConnect', () =>
            setImmediate(() => setTimeout(() => request.destroy(), 20)),
          ),
        );
      }
    });
}

function overHttp2(
  port,
  {
    method = 'GET',
    path = '/',
    headers = {},
    host = 'localhost',
    abort,
    address = '127.0.0.1',
    client,
    ...content
  } = {},
) {
  return new Promise((resolve) => {
    const own = { rejectUnauthorized: false, servername: 'localhost', ...shown(client) };
    const session = http2.connect(`https://${address}:${port}`, own);
    const done = (answer) => {
      session.close();
      resolve(answer);
    };
    session.on('error', (error) => resolve({ error: error.message }));
    const stream = session.request(
      { ':method': method, ':path': path, ':authority': host, ...headers },
      { endStream: content.body === undefined },
    );
    const informational = [];
    let answer = { informational };
    const chunks = [];
    stream.on('headers', (info) =>
      informational.push({ status: info[':status'], fields: fieldsOf(Object.entries(info)) }),
    );
    stream.on('response', (head, _flags) => {
      const pairs = Object.entries(head).flatMap(([name, value]) =>
        [value].flat().map((line) => [name, line]),
      );
      answer = { status: head[':status'], fields: fieldsOf(pairs), raw: head, informational };
      if (abort === 'head') {
        stream.close(http2.constants.NGHTTP2_CANCEL);
        done({ aborted: true, ...answer });
      } else if (abort === 'connection') {
        // The client ends the body before it closes the stream.
        session.destroy();
        resolve({ aborted: true, ...answer });
      }
    });
    stream.on('data', (chunk) => chunks.push(chunk));
    stream.on('error', (error) =>
      done({ ...answer, error: error.message, body: Buffer.concat(chunks) }),
    );
    stream.on('end', () => {
      if (answer.status === undefined || stream.rstCode) return;
      if (content.late === undefined) done({ ...answer, body: Buffer.concat(chunks) });
      else stream.end(content.late);
    });
    stream.on('close', () =>
      done(
        stream.rstCode
          ? { ...answer, error: `reset ${stream.rstCode}`, body: Buffer.concat(chunks) }
          : { ...answer, body: Buffer.concat(chunks) },
      ),
    );
    if (content.body !== undefined) send(stream, content).catch(() => {});
    if (abort === 'now')
      session.once('remoteSettings', () =>
        session.ping(() => {
          stream.close(http2.constants.NGHTTP2_CANCEL);
          done({ aborted: true });
        }),
      );
  });
}

async function overHttp3(port, { client: { servername, ...client } = {}, ...wanted } = {}) {
  const named = servername === undefined ? {} : { server_name: servername };
  const answer = await h3.request(port, { ...wanted, ...client, ...named });
  answer.raw = Object.fromEntries(answer.headers ?? []);
  answer.fields = fieldsOf(answer.headers ?? []);
  answer.informational = (answer.informational ?? []).map(({ status, headers }) => ({
    status,
    fields: fieldsOf(headers),
  }));
  return answer;
}

const faces = [
  {
    name: 'App',
    protocol: 'http/1.1',
    make: (more) => uWS.App(more),
    request: overHttp1(http, {}),
  },
  {
    name: 'SSLApp',
    protocol: 'http/1.1',
    make: (more) => uWS.SSLApp({ ...tls, ...more }),
    request: overHttp1(https, { rejectUnauthorized: false, servername: 'localhost' }),
  },
  {
    name: 'SSLApp over HTTP/2',
    protocol: 'h2',
    make: (more) => uWS.SSLApp({ ...tls, ...more }),
    request: overHttp2,
  },
  {
    name: 'H3App',
    protocol: 'h3',
    make: (more) => uWS.H3App({ ...tls, ...more }),
    request: overHttp3,
  },
];

/** Listens on a free port of the loopback and returns it. */
function listening(app) {
  let port;
  app.listen('127.0.0.1', 0, (socket, error) => {
    if (error) throw error;
    port = uWS.us_socket_local_port(socket);
  });
  return port;
}

let lastPort = 20_000 + ((process.pid * 40) % 12_000);

/**
 * Returns a port that is free for TCP, and that the system gives to no other socket that asks for any
 * port: those begin at 32768. Tests that run at the same time begin at different ones.
 */
async function freePort() {
  for (;;) {
    lastPort = 20_000 + ((lastPort + 1 - 20_000) % 12_000);
    const probe = net.createServer();
    const isFree = await new Promise((resolve) => {
      probe.once('error', () => resolve(false));
      probe.listen(lastPort, () => probe.close(() => resolve(true)));
    });
    if (isFree) return lastPort;
  }
}

/**
 * Asserts that the engine releases everything that `open()` counts. It does so after the client has
 * its response, on a busy machine some time after.
 */
async function released(open) {
  for (let tries = 0; open() > 0 && tries < 3000; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.equal(open(), 0);
}

module.exports = {
  faces,
  freePort,
  listening,
  overHttp1,
  overHttp2,
  overHttp3,
  released,
  secure: faces[1].request,
};
