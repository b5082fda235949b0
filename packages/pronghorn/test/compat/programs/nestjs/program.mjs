import 'reflect-metadata';
import { createRequire } from 'node:module';
import { Readable } from 'node:stream';
import { interval, map, take } from 'rxjs';

const require = createRequire(import.meta.url);
const nest = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');
const { ExpressAdapter } = require('@nestjs/platform-express');
const { FastifyAdapter } = require('@nestjs/platform-fastify');

/** What `@decorator` does, which JavaScript does not have here. */
function decorate(target, method, decorators, parameters = []) {
  parameters.forEach((parameter, at) => parameter(target.prototype, method, at));
  const descriptor = Object.getOwnPropertyDescriptor(target.prototype, method);
  for (const decorator of decorators) decorator(target.prototype, method, descriptor);
}

class Pages {
  find(id, page) {
    return { id, page };
  }
  create(body) {
    return body;
  }
  fails() {
    throw new nest.ForbiddenException('meant');
  }
  throws() {
    throw new Error('meant');
  }
  events() {
    return interval(5).pipe(
      take(3),
      map((at) => ({ data: { at } })),
    );
  }
  file() {
    return new nest.StreamableFile(Readable.from([Buffer.from('a '), Buffer.from('file')]), {
      type: 'text/plain',
      length: 6,
    });
  }
  redirects() {}
}
decorate(
  Pages,
  'find',
  [nest.Get('pages/:id')],
  [nest.Param('id', nest.ParseIntPipe), nest.Query('page')],
);
decorate(
  Pages,
  'create',
  [nest.Post('pages'), nest.HttpCode(202), nest.Header('x-own', '1')],
  [nest.Body()],
);
decorate(Pages, 'fails', [nest.Get('fails')]);
decorate(Pages, 'throws', [nest.Get('throws')]);
decorate(Pages, 'events', [nest.Sse('events')]);
decorate(Pages, 'file', [nest.Get('file')]);
decorate(Pages, 'redirects', [nest.Get('redirects'), nest.Redirect('/pages/1', 303)]);
nest.Controller()(Pages);

class AppModule {}
nest.Module({ controllers: [Pages] })(AppModule);

export default async (door) => {
  const onExpress = await NestFactory.create(AppModule, new ExpressAdapter(), { logger: false });
  const onFastify = await NestFactory.create(
    AppModule,
    new FastifyAdapter({ serverFactory: (handler) => door.createServer(handler) }),
    { logger: false },
  );
  onExpress.setGlobalPrefix('express');
  onFastify.setGlobalPrefix('fastify');
  await onExpress.init();
  await onFastify.init();
  const express = onExpress.getHttpAdapter().getInstance();
  const fastify = onFastify.getHttpAdapter().getInstance();
  await fastify.ready();
  // Fastify has put its handler into its server; what is Express's goes to the other one.
  const { server } = fastify;
  const [handler] = server.listeners('request');
  server.removeAllListeners('request');
  server.on('request', (req, res) =>
    (req.url.startsWith('/express') ? express : handler)(req, res),
  );
  return server;
};
