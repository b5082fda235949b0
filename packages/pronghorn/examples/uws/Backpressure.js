// Sends 10 MB as fast as the client reads, with little more than 64 KiB in memory.
const uWS = require('pronghorn');

const piece = Buffer.alloc(16 * 1024);
const total = 10_000_000;

function go(ws) {
  while (ws.left > 0 && ws.getBufferedAmount() < 64 * 1024) {
    ws.send(piece.subarray(0, Math.min(piece.length, ws.left)), true);
    ws.left -= piece.length;
  }
  if (ws.left <= 0 && ws.getBufferedAmount() === 0) ws.end(1000, 'that is all');
}

uWS
  .App()
  .ws('/*', {
    open(ws) {
      ws.left = total;
      go(ws);
    },
    drain: go,
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
