// Accepts upgrades by hand, and keeps data of the request with the connection.
const uWS = require('pronghorn');

uWS
  .App()
  .ws('/*', {
    upgrade(res, req, context) {
      res.upgrade(
        { url: req.getUrl() },
        req.getHeader('sec-websocket-key'),
        req.getHeader('sec-websocket-protocol'),
        req.getHeader('sec-websocket-extensions'),
        context,
      );
    },
    open: (ws) => ws.send(`you are at ${ws.url}`),
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
