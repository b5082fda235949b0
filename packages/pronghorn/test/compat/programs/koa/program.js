'use strict';

const { PassThrough, Readable } = require('node:stream');
const Koa = require('koa');

module.exports = () => {
  const app = new Koa({ proxy: true, keys: ['secret'] });
  app.silent = true;
  app.use(async (ctx, next) => {
    await next();
    ctx.set('x-after', String(ctx.status));
  });
  const routes = {
    '/request': (ctx) => {
      const {
        protocol,
        secure,
        host,
        ip,
        ips,
        method,
        path,
        query,
        fresh,
        length,
        type,
        subdomains,
      } = ctx.request;
      const accepts = [
        ctx.accepts('json', 'html'),
        ctx.acceptsEncodings('gzip', 'identity'),
        ctx.is('json'),
      ];
      ctx.body = {
        protocol,
        secure,
        host,
        ip,
        ips,
        method,
        path,
        query,
        fresh,
        length,
        type,
        subdomains,
        accepts,
      };
    },
    '/cookies': (ctx) => {
      ctx.cookies.set('signed', 'a', { signed: true });
      ctx.cookies.set('plain', 'b', { signed: false, httpOnly: false });
      ctx.body = [ctx.cookies.get('signed') ?? null, ctx.cookies.get('plain') ?? null];
    },
    '/echo': async (ctx) => {
      const chunks = [];
      for await (const chunk of ctx.req) chunks.push(chunk);
      ctx.body = Buffer.concat(chunks);
    },
    '/pipe': (ctx) => {
      ctx.type = 'text';
      ctx.body = ctx.req.pipe(new PassThrough());
    },
    '/stream': (ctx) => {
      ctx.type = 'text';
      ctx.body = Readable.from(
        Array.from({ length: 300 }, (_, at) => `${at} ${'x'.repeat(1000)}\n`),
      );
    },
    '/blob': (ctx) => {
      ctx.body = new Blob(['blob'], { type: 'text/plain' });
    },
    '/response': (ctx) => {
      ctx.body = new Response('of fetch', { status: 203, headers: { 'x-fetch': '1' } });
    },
    '/empty': (ctx) => {
      ctx.body = null;
    },
    '/etag': (ctx) => {
      ctx.etag = 'tag';
      ctx.lastModified = new Date(0);
      if (ctx.fresh) ctx.status = 304;
      else ctx.body = 'tagged';
    },
    '/redirect': (ctx) => ctx.redirect('/request'),
    '/attachment': (ctx) => {
      ctx.attachment('€.txt');
      ctx.body = 'attached';
    },
    '/attachment/latin': (ctx) => {
      ctx.attachment('naïve.txt');
      ctx.body = 'attached';
    },
    '/throw': (ctx) => ctx.throw(403, 'meant', { expose: true, headers: { 'x-reason': 'meant' } }),
    '/fails': () => {
      throw new Error('meant');
    },
    '/own': (ctx) => {
      ctx.respond = false;
      ctx.res.writeHead(207, { 'x-own': '1' });
      ctx.res.end('own');
    },
  };
  app.use((ctx) => routes[ctx.path]?.(ctx));
  return app.callback();
};
