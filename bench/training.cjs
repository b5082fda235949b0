'use strict';

// An application that uses a bit of every feature, for the profile of `make optimized`.
// usage: node training.cjs PACKAGE CERT KEY     or: node training.cjs PACKAGE     (without TLS)

const [, , name, cert, key] = process.argv;
const { App, Server, us_socket_local_port } = require(name);
const { fetchHandler, Response } = require(`${name}/lib/fetch`);

const large = Buffer.alloc(300_000, 'x');
const app = cert ? Server({ cert_file_name: cert, key_file_name: key }) : App();

app
  .get('/hello', (res) => res.end('hello, world!'))
  .get('/users/:id', (res, req) => {
    const user = {
      id: req.getParameter('id'),
      agent: req.getHeader('user-agent'),
      wants: req.getQuery('wants'),
    };
    res.writeStatus('200 OK').writeHeader('content-type', 'application/json').end(JSON.stringify(user));
  })
  .get('/later', (res) => {
    let gone = false;
    res.onAborted(() => (gone = true));
    setImmediate(() => gone || res.cork(() => res.end('later')));
  })
  .get('/large', (res) => {
    res.onAborted(() => {});
    const [done, finished] = res.tryEnd(large, large.length);
    if (done || finished) return;
    res.onWritable((offset) => res.tryEnd(large.subarray(offset), large.length)[0]);
  })
  .post('/echo', (res) => {
    let pieces = Buffer.alloc(0);
    res.onAborted(() => {});
    res.onData((piece, isLast) => {
      pieces = Buffer.concat([pieces, Buffer.from(piece)]);
      if (isLast) res.end(pieces);
    });
  })
  .any(
    '/fetch/*',
    fetchHandler((request) => {
      const { pathname, searchParams } = new URL(request.url);
      const user = { at: pathname, wants: searchParams.get('wants'), agent: request.headers.get('user-agent') };
      return new Response(JSON.stringify(user), { headers: { 'content-type': 'application/json' } });
    }),
  )
  .ws('/socket', {
    message: (ws, message, isBinary) => ws.send(message, isBinary),
  })
  .listen('127.0.0.1', 0, (socket, error) => {
    if (error) throw error;
    console.log(`listening on http://127.0.0.1:${us_socket_local_port(socket)}`);
  });

// A graceful exit: the counts are written then.
process.once('SIGTERM', () => app.close({ timeout: 1000 }));
