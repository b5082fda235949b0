'use strict';

/** A trace that began at the client. */
const trace = '0af7651916cd43dd8448eb211c80319c';
const parent = 'b7ad6b7169203331';

const byName = (spans) =>
  spans.sort((one, other) =>
    one.name + one.attributes['url.path'] < other.name + other.attributes['url.path'] ? -1 : 1,
  );

/** Requests that name their door, so that its spans are found. */
const asking = (ask) => (target, given) =>
  ask(target, { ...given, headers: { ...given?.headers, 'x-door': `:${ask.port}` } });

const ofHttp = {
  'a span for each request, with method, path, status and chosen fields': async (ask) => {
    await asking(ask)('/users/7?a=1', { headers: { 'x-client': 'compat' } });
    return ask.seen(1);
  },
  'the trace of the client goes on': async (ask) => {
    await asking(ask)('/users/7', { headers: { traceparent: `00-${trace}-${parent}-01` } });
    return ask.seen(1);
  },
  'requests at the same time keep their contexts': async (ask) => {
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => asking(ask)(`/spans/${at}`)),
    );
    return [answers.map(({ body }) => body), byName(await ask.seen(10))];
  },
  'bodies and errors': async (ask) => {
    await asking(ask)('/echo', { method: 'POST', json: { a: 'x'.repeat(10_000) } });
    await asking(ask)('/fails');
    await asking(ask)('/nowhere');
    return byName(await ask.seen(3));
  },
  'requests that are ignored': async (ask) => {
    await asking(ask)('/ignored');
    await asking(ask)('/users/8');
    return ask.seen(1);
  },
  'responses that are destroyed': async (ask) => {
    await asking(ask)('/destroys');
    return ask.seen(1);
  },
};

module.exports = {
  node: '24',
  env: { OTEL_METRICS_EXPORTER: 'none', OTEL_LOGS_EXPORTER: 'none' },
  covers: {
    '@opentelemetry/instrumentation-http': 'observability',
    '@opentelemetry/instrumentation-express': 'observability',
  },
  cases: {
    '@opentelemetry/instrumentation-http': ofHttp,
    '@opentelemetry/instrumentation-express': {
      'names of routes, and a span for each layer': async (ask) => {
        await asking(ask)('/users/7');
        await asking(ask)('/echo', { method: 'POST', json: {} });
        return byName(await ask.seen(2));
      },
    },
  },
};
