'use strict';

// Each middleware under a path of its own name.

const { once } = require('node:events');
const http = require('node:http');
const path = require('node:path');
const { Writable } = require('node:stream');
const bodyParser = require('body-parser');
const busboy = require('busboy');
const compression = require('compression');
const timeout = require('connect-timeout');
const cookieParser = require('cookie-parser');
const cors = require('cors');
const { doubleCsrf } = require('csrf-csrf');
const errorHandler = require('errorhandler');
const express = require('express');
const fileUpload = require('express-fileupload');
const { rateLimit } = require('express-rate-limit');
const session = require('express-session');
const { body, query, validationResult } = require('express-validator');
const { formidable } = require('formidable');
const helmet = require('helmet');
const hpp = require('hpp');
const { createProxyMiddleware, fixRequestBody } = require('http-proxy-middleware');
const methodOverride = require('method-override');
const morgan = require('morgan');
const multer = require('multer');
const onFinished = require('on-finished');
const onHeaders = require('on-headers');
const passport = require('passport');
const { Strategy } = require('passport-local');
const pinoHttp = require('pino-http');
const responseTime = require('response-time');
const serveIndex = require('serve-index');
const serveStatic = require('serve-static');
const swagger = require('swagger-ui-express');
const vhost = require('vhost');

const files = path.join(__dirname, 'files');
const text = (value) => (req, res) => res.type('text').send(value);
const long = 'compressible '.repeat(2000);

/** Something that is noted after the response, and asked for by the next request. */
function notes() {
  const noted = [];
  const waiting = [];
  return {
    add(note) {
      if (waiting.length > 0) waiting.shift()(note);
      else noted.push(note);
    },
    next: async (req, res) =>
      res.json(noted.length > 0 ? noted.shift() : await new Promise((go) => waiting.push(go))),
  };
}

/** A server behind the proxy. */
async function upstream() {
  const server = http.createServer(async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    const { method, url, headers } = req;
    const own = Object.fromEntries(
      ['x-own', 'x-forwarded-proto', 'content-type'].map((name) => [name, headers[name]]),
    );
    res.writeHead(url.endsWith('/gone') ? 410 : 200, {
      'content-type': 'application/json',
      'set-cookie': ['a=1', 'b=2'],
    });
    res.end(JSON.stringify({ method, url, own, size: Buffer.concat(chunks).length }));
  });
  server.listen(0, '127.0.0.1').unref();
  await once(server, 'listening');
  return server.address().port;
}

module.exports = async () => {
  const app = express();
  app.set('env', 'test');
  const mount = (name, ...handlers) => app.use(`/${name}`, ...handlers);

  mount('helmet', helmet(), text('helmet'));
  mount('cors/all', cors(), text('cors'));
  mount(
    'cors',
    cors({
      origin: ['https://a.example'],
      credentials: true,
      exposedHeaders: ['x-own'],
      maxAge: 60,
    }),
    text('cors'),
  );
  mount('compression', compression(), (req, res) => {
    res.type('text');
    if (req.path !== '/flushed') return res.send(long);
    res.write(long);
    res.flush();
    setImmediate(() => res.end(long));
  });

  const logged = notes();
  const format = ':method :url :status :res[content-length] :referrer :user-agent :remote-addr';
  app.get('/morgan/next', logged.next);
  mount('morgan', morgan(format, { stream: { write: (line) => logged.add(line) } }), (req, res) =>
    req.path === '/missing' ? res.sendStatus(404) : res.send('logged'),
  );

  const pinoed = notes();
  const sink = new Writable({
    write(chunk, _encoding, done) {
      const { req, res, msg, level } = JSON.parse(chunk);
      pinoed.add({
        method: req.method,
        url: req.url,
        address: req.remoteAddress,
        status: res.statusCode,
        msg,
        level,
      });
      done();
    },
  });
  app.get('/pino-http/next', pinoed.next);
  mount('pino-http', pinoHttp({}, sink), (req, res) => {
    res.statusCode = req.path === '/fails' ? 500 : 200;
    res.end(typeof req.log.info);
  });

  const parsers = [
    bodyParser.json({ limit: 1000 }),
    bodyParser.urlencoded({ extended: false }),
    bodyParser.text(),
    bodyParser.raw(),
  ];
  mount('body-parser', ...parsers, (req, res) => res.json({ body: req.body ?? null }));
  mount('cookie-parser', cookieParser('secret'), (req, res) => {
    res.cookie('signed', 'a', { signed: true }).cookie('object', { b: 1 });
    res.json({ cookies: req.cookies, signed: req.signedCookies });
  });

  const sessions = session({
    secret: 'secret',
    resave: false,
    saveUninitialized: false,
    cookie: { maxAge: 60_000 },
  });
  mount('express-session', sessions, (req, res) => {
    if (req.path === '/leave') return req.session.destroy(() => res.send('left'));
    req.session.views = (req.session.views ?? 0) + 1;
    res.json({ views: req.session.views, secure: req.secure });
  });

  const authentication = new passport.Passport();
  authentication.use(
    new Strategy((name, password, done) => done(null, password === 'right' ? { name } : false)),
  );
  authentication.serializeUser((user, done) => done(null, user.name));
  authentication.deserializeUser((name, done) => done(null, { name }));
  const passported = express.Router();
  passported.use(
    express.urlencoded({ extended: false }),
    session({ secret: 's', resave: false, saveUninitialized: false }),
  );
  passported.use(authentication.initialize(), authentication.session());
  passported.post(
    '/login',
    authentication.authenticate('local', { successRedirect: 'me', failureRedirect: 'login' }),
  );
  passported.post('/logout', (req, res, next) =>
    req.logout((error) => (error ? next(error) : res.send('out'))),
  );
  passported.get('/me', (req, res) =>
    req.isAuthenticated() ? res.json(req.user) : res.sendStatus(401),
  );
  mount('passport', passported);

  mount(
    'express-rate-limit',
    rateLimit({ windowMs: 3_600_000, limit: 2, standardHeaders: 'draft-7', legacyHeaders: false }),
    text('ok'),
  );

  const csrf = doubleCsrf({
    getSecret: () => 'secret',
    getSessionIdentifier: () => 'one',
    cookieName: 'csrf',
    cookieOptions: { secure: false },
  });
  const guarded = express.Router().use(cookieParser());
  guarded.get('/token', (req, res) => res.json({ token: csrf.generateCsrfToken(req, res) }));
  guarded.post('/', csrf.doubleCsrfProtection, (req, res) => res.send('guarded'));
  mount('csrf-csrf', guarded);

  mount('method-override', methodOverride('x-http-method-override'), (req, res) =>
    res.send(req.method),
  );
  mount('response-time', responseTime({ digits: 0 }), (req, res) => res.send('timed'));

  const rules = [
    body('mail').isEmail().normalizeEmail(),
    query('page').optional().isInt({ min: 1 }).toInt(),
  ];
  mount('express-validator', express.json(), rules, (req, res) => {
    const result = validationResult(req);
    res
      .status(result.isEmpty() ? 200 : 422)
      .json({ errors: result.array(), mail: req.body?.mail ?? null });
  });

  mount('connect-timeout', timeout('50ms'), (req, res) => {
    if (req.path !== '/slow') res.send(String(req.timedout));
  });
  mount('errorhandler', (req, res, next) =>
    next(Object.assign(new Error('meant'), { status: 418, stack: 'Error: meant\n    at there' })),
  );
  app.use('/errorhandler', errorHandler({ log: false }));

  mount('serve-static', serveStatic(files, { index: false, extensions: ['txt'] }));
  mount('serve-index', serveIndex(files, { icons: true }));
  const hosts = express
    .Router()
    .use(
      vhost('*.example.com', (req, res) => res.json({ host: req.vhost.host, name: req.vhost[0] })),
    );
  mount('vhost', hosts, text('another'));

  const uploads = multer({ limits: { fileSize: 200_000 } });
  const described = ({ fieldname, originalname, mimetype, size }) => ({
    fieldname,
    originalname,
    mimetype,
    size,
  });
  mount('multer', uploads.any(), (req, res) =>
    res.json({ body: req.body, files: req.files.map(described) }),
  );
  mount('busboy', (req, res, next) => {
    const found = [];
    const parser = busboy({ headers: req.headers });
    parser.on('field', (name, value) => found.push({ name, value }));
    parser.on('file', (name, file, { filename }) => {
      let size = 0;
      file
        .on('data', (chunk) => (size += chunk.length))
        .on('end', () => found.push({ name, filename, size }));
      file.on('error', () => {});
    });
    parser.once('close', () => res.headersSent || res.json(found)).on('error', next);
    req.pipe(parser);
  });
  mount('formidable', async (req, res, next) => {
    try {
      const [fields, found] = await formidable({ hashAlgorithm: 'sha1' }).parse(req);
      const shown = Object.values(found).flat();
      res.json({
        fields,
        files: shown.map(({ originalFilename, size, hash }) => ({ originalFilename, size, hash })),
      });
    } catch (error) {
      next(error);
    }
  });
  mount(
    'express-fileupload',
    fileUpload({ limits: { fileSize: 200_000 }, abortOnLimit: true }),
    (req, res) => {
      const found = Object.entries(req.files ?? {}).map(
        ([field, { name, size, md5, truncated }]) => ({
          field,
          name,
          size,
          md5,
          truncated,
        }),
      );
      res.json({ body: req.body ?? null, files: found });
    },
  );

  const finished = notes();
  app.get('/on-finished/next', finished.next);
  mount('on-finished', (req, res) => {
    onFinished(res, (error, { statusCode, writableFinished }) =>
      finished.add({ error: error ?? null, statusCode, writableFinished }),
    );
    res.send(String(onFinished.isFinished(res)));
  });
  mount('on-headers', (req, res) => {
    onHeaders(res, function () {
      this.setHeader('x-late', String(this.statusCode));
      this.removeHeader('x-powered-by');
    });
    if (req.path === '/written') res.writeHead(203, { 'x-written': '1' });
    res.end('on headers');
  });
  mount('hpp', express.urlencoded({ extended: true }), hpp({ checkQuery: false }), (req, res) =>
    res.json([req.body, req.bodyPolluted]),
  );

  const port = await upstream();
  const target = `http://127.0.0.1:${port}`;
  mount(
    'http-proxy-middleware/parsed',
    express.json(),
    createProxyMiddleware({ target, on: { proxyReq: fixRequestBody } }),
  );
  mount('http-proxy-middleware/refused', createProxyMiddleware({ target: 'http://127.0.0.1:1' }));
  mount(
    'http-proxy-middleware',
    createProxyMiddleware({
      target,
      changeOrigin: true,
      pathRewrite: { '^/a': '/b' },
      headers: { 'x-own': '1' },
    }),
  );

  const document = { openapi: '3.0.0', info: { title: 'compat', version: '1' }, paths: {} };
  mount('swagger-ui-express', swagger.serve, swagger.setup(document));

  app.use((error, req, res, _next) =>
    res
      .status(error.status ?? error.statusCode ?? 500)
      .json({ error: error.message, code: error.code }),
  );
  return app;
};
