// Drops messages for a client that reads nothing, and closes it.
const uWS = require('pronghorn');

uWS
  .App()
  .ws('/*', {
    maxBackpressure: 1024 * 1024,
    closeOnBackpressureLimit: true,
    open(ws) {
      ws.timer = setInterval(() => {
        for (let index = 0; index < 16; index++)
          if (ws.timer !== undefined) ws.send('x'.repeat(64 * 1024));
      }, 1);
    },
    dropped: (ws, message) => console.log(`dropped ${message.byteLength} bytes`),
    close(ws) {
      clearInterval(ws.timer);
      ws.timer = undefined;
      console.log('closed');
    },
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
