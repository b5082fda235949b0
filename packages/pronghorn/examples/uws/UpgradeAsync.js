// Accepts an upgrade after an asynchronous look-up of a token.
const uWS = require('pronghorn');

const users = new Map([['secret', 'alice']]);
const lookUp = (token) => new Promise((resolve) => setTimeout(() => resolve(users.get(token)), 10));

uWS
  .App()
  .ws('/*', {
    async upgrade(res, req, context) {
      let isAborted = false;
      res.onAborted(() => (isAborted = true));
      // The request cannot be read after the first await.
      const token = req.getQuery('token');
      const fields = ['key', 'protocol', 'extensions'].map((field) =>
        req.getHeader(`sec-websocket-${field}`),
      );
      const user = await lookUp(token);
      if (isAborted) return;
      res.cork(() => {
        if (user === undefined) res.writeStatus('401 Unauthorized').end();
        else res.upgrade({ user }, ...fields, context);
      });
    },
    open: (ws) => ws.send(`hello ${ws.user}`),
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
