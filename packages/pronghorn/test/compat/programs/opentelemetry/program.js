'use strict';

// Spans of OpenTelemetry's instrumentations, which are registered before anything else is loaded, as its documentation wants it.

const { EventEmitter } = require('node:events');
const { context, SpanKind, SpanStatusCode, trace } = require('@opentelemetry/api');
const { ExpressInstrumentation } = require('@opentelemetry/instrumentation-express');
const { HttpInstrumentation } = require('@opentelemetry/instrumentation-http');
const { NodeSDK } = require('@opentelemetry/sdk-node');

const spans = [];
const ended = new EventEmitter().setMaxListeners(0);
const processor = {
  onStart() {},
  onEnd(span) {
    spans.push(span);
    ended.emit('span');
  },
  forceFlush: async () => {},
  shutdown: async () => {},
};
new NodeSDK({
  spanProcessors: [processor],
  metricReaders: [],
  logRecordProcessors: [],
  instrumentations: [
    new HttpInstrumentation({
      headersToSpanAttributes: {
        server: { requestHeaders: ['x-door', 'x-client'], responseHeaders: ['x-own'] },
      },
      ignoreIncomingRequestHook: ({ url }) => url === '/ignored',
    }),
    new ExpressInstrumentation(),
  ],
}).start();

const http = require('node:http');
require('node:https');
const express = require('express');

/** The door that a request has named itself. */
const doorOf = ({ attributes }) => attributes['http.request.header.x-door']?.[0];

/** What does not differ from one request to the next. */
function shown(span, all) {
  const { attributes, name, status, events } = span;
  const kept = Object.entries(attributes).filter(
    ([key]) =>
      !/(x-door|port|peer|address|ip|host|duration|protocol|flavor|user_agent|transport)/.test(key),
  );
  const id = span.spanContext().spanId;
  const children = all.filter(({ parentSpanContext }) => parentSpanContext?.spanId === id);
  return {
    name,
    status: status.code === SpanStatusCode.UNSET ? 'unset' : status,
    attributes: Object.fromEntries(kept.sort()),
    events: events.map((event) => event.name),
    parent: span.parentSpanContext?.spanId ?? null,
    trace: span.parentSpanContext === undefined ? null : span.spanContext().traceId,
    children: children.map((child) => child.name),
  };
}

function makeApp() {
  const app = express();
  app.set('env', 'test');
  app.get('/users/:id', (req, res) => {
    res.set('x-own', 'set').json({ id: req.params.id });
  });
  app.get('/spans/:id', async (req, res) => {
    const before = trace.getSpan(context.active()).spanContext().traceId;
    await new Promise((resolve) => setImmediate(resolve));
    trace.getTracer('compat').startActiveSpan(`inner ${req.params.id}`, (span) => span.end());
    res.json({ same: before === trace.getSpan(context.active()).spanContext().traceId });
  });
  app.post('/echo', express.json(), (req, res) => res.status(201).json(req.body));
  app.get('/ignored', (req, res) => res.send('ignored'));
  app.get('/calls', (req, res, next) => {
    http
      .get({ port: req.query.port, host: '127.0.0.1', path: '/' }, (answer) => answer.pipe(res))
      .on('error', next);
  });
  app.get('/fails', () => {
    throw new Error('meant');
  });
  app.get('/destroys', (req, res) => res.destroy());
  app.use((error, req, res, _next) => res.status(500).send(error.message));
  return app;
}

module.exports = (door) => {
  const server = door.createServer(makeApp());
  return {
    server,
    /** Takes the server spans of this door, once there are `count`. */
    async seen(count) {
      const port = `:${server.address().port}`;
      const isOwn = (span) => span.kind === SpanKind.SERVER && doorOf(span) === port;
      while (spans.filter(isOwn).length < count)
        await new Promise((resolve) => ended.once('span', resolve));
      const own = spans.filter(isOwn).map((span) => shown(span, spans));
      for (const span of spans.filter(isOwn)) spans.splice(spans.indexOf(span), 1);
      return own;
    },
  };
};
