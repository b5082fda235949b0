'use strict';

// What Sentry would send. It is set up before anything else is loaded, as its documentation wants it, and sends nothing.

const { EventEmitter } = require('node:events');
const Sentry = require('@sentry/node');

const events = [];
const noted = new EventEmitter().setMaxListeners(0);
function note(event) {
  events.push(event);
  noted.emit('event');
  return null;
}

Sentry.init({
  dsn: 'https://key@sentry.invalid/1',
  tracesSampleRate: 1,
  traceLifecycle: 'static',
  sendDefaultPii: true,
  // The same error from behind each door is no duplicate here.
  integrations: (all) => all.filter(({ name }) => name !== 'Dedupe'),
  beforeSend: note,
  beforeSendTransaction: note,
  transport: () => ({ send: async () => ({}), flush: async () => true }),
});

const express = require('express');

function makeApp() {
  const app = express();
  app.set('env', 'test');
  app.get('/users/:id', (req, res) => res.json({ id: req.params.id }));
  app.get('/isolated/:id', async (req, res) => {
    Sentry.setTag('id', req.params.id);
    Sentry.setUser({ id: req.params.id });
    await new Promise((resolve) => setImmediate(resolve));
    const { tags } = Sentry.getIsolationScope().getScopeData();
    Sentry.captureMessage(`message ${req.params.id}`);
    res.json(tags);
  });
  app.post('/fails', express.json(), () => {
    throw new Error('meant');
  });
  Sentry.setupExpressErrorHandler(app);
  app.use((error, req, res, _next) => res.status(500).send(error.message));
  return app;
}

/** What does not differ from one request to the next. */
function shown({
  type,
  transaction,
  message,
  exception,
  tags,
  user,
  request,
  contexts,
  transaction_info: info,
}) {
  const { data, op, status } = contexts?.trace ?? {};
  return {
    type: type ?? 'event',
    transaction,
    message,
    exception: exception?.values.map(({ value, mechanism }) => [value, mechanism]),
    tags,
    user: user?.id,
    request: request && {
      ...request,
      url: request.url?.replace(/:\/\/[^/]*/, '://host'),
      headers: Object.keys(request.headers ?? {}).length > 0,
    },
    source: info?.source,
    op: type === undefined ? undefined : op,
    status: type === undefined ? undefined : status,
    route: data?.['http.route'],
    code: data?.['http.response.status_code'],
  };
}

module.exports = (door) => {
  const server = door.createServer(makeApp());
  return {
    server,
    /** Takes the events that requests to this door have caused, once there are `count`. */
    async seen(count) {
      const port = `:${server.address().port}`;
      const isOwn = ({ request }) => request?.headers?.['x-door'] === port;
      while (events.filter(isOwn).length < count)
        await new Promise((resolve) => noted.once('event', resolve));
      const own = events.filter(isOwn);
      for (const event of own) events.splice(events.indexOf(event), 1);
      return own.map(shown);
    },
  };
};
