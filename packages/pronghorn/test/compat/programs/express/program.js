'use strict';

const path = require('node:path');
const { Readable } = require('node:stream');
const express = require('express');

module.exports = () => {
  const app = express();
  app.set('trust proxy', 'loopback');
  const router = express.Router();
  router.param('id', (req, res, next, id) => {
    req.user = { id };
    next();
  });
  router.get('/:id', (req, res) =>
    res.json({ user: req.user, query: req.query, base: req.baseUrl, url: req.originalUrl }),
  );
  router.all('/:id/any', (req, res) => res.type('text').send(req.method));

  app.use('/public', express.static(path.join(__dirname, 'public'), { maxAge: '1h' }));
  app.use('/users', router);
  app.post('/json', express.json({ limit: '10kb' }), (req, res) => res.status(201).json(req.body));
  app.post('/form', express.urlencoded({ extended: true }), (req, res) => res.json(req.body));
  app.post('/text', express.text({ type: '*/*' }), (req, res) => res.send(req.body));
  app.post('/raw', express.raw({ type: '*/*' }), (req, res) => res.send(req.body));
  app.get('/request', (req, res) => {
    const {
      protocol,
      secure,
      hostname,
      ip,
      ips,
      fresh,
      xhr,
      method,
      path: target,
      subdomains,
    } = req;
    const accepts = [
      req.accepts(['html', 'json']),
      req.acceptsLanguages('de', 'en'),
      req.is('json'),
    ];
    res.json({
      protocol,
      secure,
      hostname,
      ip,
      ips,
      fresh,
      xhr,
      method,
      target,
      subdomains,
      accepts,
    });
  });
  app.get('/answer', (req, res) => {
    res
      .cookie('plain', 'a b', { httpOnly: true })
      .cookie('other', '1', { sameSite: 'lax', path: '/x' })
      .clearCookie('old');
    res
      .set('X-Custom', 'ü'.normalize('NFC'))
      .append('Warning', '199 one')
      .append('Warning', '199 two')
      .vary('Origin');
    res
      .links({ next: 'https://example.com/2' })
      .location('/elsewhere')
      .status(202)
      .send('accepted');
  });
  app.get('/redirect', (req, res) => res.redirect(303, '/users/7'));
  app.get('/format', (req, res) =>
    res.format({ text: () => res.send('text'), json: () => res.json({ as: 'json' }) }),
  );
  app.get('/send-file', (req, res) => res.sendFile(path.join(__dirname, 'public', 'file.txt')));
  app.get('/download', (req, res) =>
    res.download(path.join(__dirname, 'public', 'file.txt'), 'naïve.txt'),
  );
  app.get('/status', (req, res) => res.sendStatus(204));
  app.get('/stream', (req, res) => {
    res.type('text');
    Readable.from(Array.from({ length: 500 }, (_, at) => `${at} ${'x'.repeat(1000)}\n`)).pipe(res);
  });
  app.get('/events', (req, res) => {
    res.set({ 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    res.flushHeaders();
    let at = 0;
    const timer = setInterval(() => {
      res.write(`id: ${at}\ndata: event ${at}\n\n`);
      if (++at === 3) {
        clearInterval(timer);
        res.end();
      }
    }, 5);
  });
  app.get('/throws', () => {
    throw Object.assign(new Error('meant'), { status: 418, headers: { 'x-reason': 'teapot' } });
  });
  app.get('/rejects', (req, res, next) => Promise.reject(new Error('meant')).catch(next));
  app.use('/handled', (req, res, next) => next(new TypeError('handled')));
  app.use('/handled', (error, req, res, _next) => res.status(400).json({ error: error.message }));
  return app;
};
