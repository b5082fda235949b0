'use strict';

const sorted = (events) =>
  events.sort((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));
const asking = (ask) => (target, given) =>
  ask(target, { ...given, headers: { 'x-door': `:${ask.port}` } });

const own = {
  'a transaction for each request, named by its route': async (ask) => {
    await asking(ask)('/users/7?a=1');
    return ask.seen(1);
  },
  'errors with their request and its body': async (ask) => {
    await asking(ask)('/fails', { method: 'POST', json: { a: 1 } });
    return sorted(await ask.seen(2));
  },
  'requests at the same time are isolated': async (ask) => {
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, at) => asking(ask)(`/isolated/${at}`)),
    );
    return [answers.map(({ body }) => body), sorted(await ask.seen(20))];
  },
};

module.exports = { covers: { '@sentry/node': 'observability' }, cases: { '@sentry/node': own } };
