'use strict';

const own = (target) => {
  const post = (query, variables, headers) => ({
    method: 'POST',
    json: { query, variables },
    headers,
  });
  const agent = { 'user-agent': 'compat', 'content-type': 'application/json' };
  return {
    'queries, mutations and variables': async (ask) => [
      await ask(target, post('{ hello }')),
      await ask(target, post('query ($name: String) { hello(name: $name) }', { name: 'ü' })),
      await ask(target, post('mutation { add(a: 1, b: 2) }')),
      await ask(target, post('{ agent }', {}, agent)),
      await ask(`${target}?query=${encodeURIComponent('{ hello }')}`, {
        headers: { 'apollo-require-preflight': 'true' },
      }),
    ],
    errors: async (ask) => [
      await ask(target, post('{ none }')),
      await ask(target, post('{ fails }')),
      await ask(target, {
        method: 'POST',
        body: '{',
        headers: { 'content-type': 'application/json' },
      }),
      await ask(target, { method: 'PUT' }),
    ],
    'a page for browsers': async (ask) => {
      const { status, fields } = await ask(target, { headers: { accept: 'text/html' } });
      return [status, fields['content-type']];
    },
  };
};

module.exports = {
  covers: { 'graphql-yoga': 'GraphQL server', '@apollo/server': 'GraphQL server' },
  cases: {
    'graphql-yoga': {
      ...own('/yoga'),
      'subscriptions by server-sent events': (ask) =>
        ask('/yoga', {
          method: 'POST',
          json: { query: 'subscription { count(to: 3) }' },
          headers: { accept: 'text/event-stream' },
        }),
    },
    '@apollo/server': own('/apollo'),
  },
};
