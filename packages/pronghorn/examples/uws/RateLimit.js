// Accepts at most ten messages per minute from each client.
const uWS = require('pronghorn');

const [most, span] = [10, 60_000];

uWS
  .App()
  .ws('/*', {
    open: (ws) => (ws.times = []),
    message(ws, message, isBinary) {
      const now = Date.now();
      ws.times = ws.times.filter((time) => now - time < span);
      if (ws.times.length >= most) return ws.end(1008, 'too many messages');
      ws.times.push(now);
      return ws.send(message, isBinary);
    },
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
