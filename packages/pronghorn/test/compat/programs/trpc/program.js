'use strict';

const { initTRPC, TRPCError } = require('@trpc/server');
const { createHTTPHandler } = require('@trpc/server/adapters/standalone');

const t = initTRPC.context().create({ isDev: false });
const text = (value) => {
  if (typeof value !== 'string') throw new Error('no string');
  return value;
};
const router = t.router({
  hello: t.procedure.input(text).query(({ input, ctx }) => ({ hello: input, agent: ctx.agent })),
  later: t.procedure.query(async () => new Promise((resolve) => setImmediate(resolve, 'later'))),
  add: t.procedure.input((value) => value).mutation(({ input }) => input.a + input.b),
  fails: t.procedure.query(() => {
    throw new TRPCError({ code: 'FORBIDDEN', message: 'meant' });
  }),
  count: t.procedure.subscription(async function* () {
    for (let at = 1; at <= 3; at++) yield at;
  }),
});

module.exports = () =>
  createHTTPHandler({
    router,
    createContext: ({ req }) => ({ agent: req.headers['user-agent'] ?? null }),
    responseMeta: () => ({ headers: { 'x-meta': '1' } }),
    onError: () => {},
  });
