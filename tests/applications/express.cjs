// An Express application on Node.js's own server, as behind a reverse proxy. Prints its port.
'use strict';

const crypto = require('node:crypto');
const express = require('express');

const app = express();
app.set('trust proxy', 'loopback');

app.get('/who', (request, response) => {
  const { protocol, hostname, ip, secure, originalUrl } = request;
  response.json({ protocol, hostname, ip, secure, originalUrl });
});

app.post('/form', express.urlencoded({ extended: false }), (request, response) => {
  response.cookie('seen', request.body.name, { httpOnly: true, secure: request.secure });
  response.redirect(303, `/who?name=${encodeURIComponent(request.body.name)}`);
});

app.post('/json', express.json({ limit: '1kb' }), (request, response) => response.status(201).json(request.body));

app.put('/upload', (request, response, next) => {
  const hash = crypto.createHash('sha256');
  request.on('data', (piece) => hash.update(piece));
  request.on('end', () => response.send(hash.digest('hex')));
  request.on('error', next);
});

app.get('/events', (_, response) => {
  response.type('text/event-stream');
  let number = 0;
  const timer = setInterval(() => {
    response.write(`data: ${++number}\n\n`);
    if (number === 3) {
      clearInterval(timer);
      response.end();
    }
  }, 20);
});

app.get('/broken', () => {
  throw new Error('the application has a bug');
});

const server = app.listen(0, '127.0.0.1', () => console.error(`listening on http://127.0.0.1:${server.address().port}`));
