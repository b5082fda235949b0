'use strict';

const { ApolloServer } = require('@apollo/server');
const { expressMiddleware } = require('@as-integrations/express5');
const express = require('express');
const { createSchema, createYoga } = require('graphql-yoga');

const typeDefs = /* GraphQL */ `
  type Query {
    hello(name: String): String
    agent: String
    fails: String
  }
  type Mutation {
    add(a: Int!, b: Int!): Int
  }
  type Subscription {
    count(to: Int!): Int
  }
`;
const resolvers = {
  Query: {
    hello: (_, { name }) => `hello ${name ?? 'you'}`,
    agent: (_, __, { agent }) => agent,
    fails: () => {
      throw new Error('meant');
    },
  },
  Mutation: { add: (_, { a, b }) => a + b },
  Subscription: {
    count: {
      async *subscribe(_, { to }) {
        for (let at = 1; at <= to; at++) yield { count: at };
      },
    },
  },
};

module.exports = async () => {
  const yoga = createYoga({
    schema: createSchema({ typeDefs, resolvers }),
    context: ({ request }) => ({ agent: request.headers.get('user-agent') }),
    graphqlEndpoint: '/yoga',
    logging: false,
    maskedErrors: true,
  });
  const apollo = new ApolloServer({
    typeDefs,
    resolvers,
    includeStacktraceInErrorResponses: false,
    introspection: true,
  });
  await apollo.start();
  const app = express();
  const context = async ({ req }) => ({ agent: req.get('user-agent') });
  app.use('/apollo', express.json(), expressMiddleware(apollo, { context }));
  app.use(yoga.graphqlEndpoint, yoga);
  return app;
};
