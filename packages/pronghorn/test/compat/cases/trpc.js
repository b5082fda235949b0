'use strict';

const input = (value) => encodeURIComponent(JSON.stringify(value));
const own = {
  'queries and mutations': async (ask) => [
    await ask(`/hello?input=${input('ü')}`, { headers: { 'user-agent': 'compat' } }),
    await ask('/add', { method: 'POST', json: { a: 1, b: 2 } }),
    await ask('/add', { method: 'POST', json: { a: 1, b: 'x'.repeat(100_000) } }),
  ],
  batches: (ask) => ask(`/hello,later?batch=1&input=${input({ 0: 'a' })}`),
  'batches that stream': (ask) =>
    ask(`/hello,later?batch=1&input=${input({ 0: 'a' })}`, {
      headers: { 'trpc-accept': 'application/jsonl' },
    }),
  'subscriptions by server-sent events': (ask) =>
    ask('/count', { headers: { accept: 'text/event-stream' } }),
  errors: async (ask) => [
    await ask('/fails'),
    await ask(`/hello?input=${input(1)}`),
    await ask('/nowhere'),
    await ask('/add', {
      method: 'POST',
      body: '{',
      headers: { 'content-type': 'application/json' },
    }),
  ],
};

module.exports = { covers: { '@trpc/server': 'RPC server' }, cases: { '@trpc/server': own } };
