// Sends a message to all clients every second.
const uWS = require('pronghorn');

let count = 0;
const app = uWS
  .App()
  .ws('/*', { open: (ws) => ws.subscribe('broadcast') })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
setInterval(() => app.publish('broadcast', `tick ${++count}`), Number(process.env.EVERY ?? 1000));
