// Handlers and options of a WebSocket route.
const uWS = require('pronghorn');

uWS
  .App()
  .ws('/*', {
    compression: uWS.SHARED_COMPRESSOR,
    maxPayloadLength: 16 * 1024 * 1024,
    idleTimeout: 12,
    open: (ws) => console.log(`open over ${ws.getProtocol()}`),
    message(ws, message, isBinary) {
      // 1: sent, 0: buffered because the client is slow, 2: dropped.
      const result = ws.send(message, isBinary, true);
      if (result !== 1) console.log(`the client is slow: ${result}`);
    },
    drain: (ws) => console.log(`${ws.getBufferedAmount()} bytes are still buffered`),
    close: (ws, code) => console.log(`closed with ${code}`),
  })
  .any('/*', (res) => res.end('a WebSocket is served here'))
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
