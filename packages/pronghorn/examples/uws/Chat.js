// Chat rooms by path, such as /rooms/kitchen?name=alice.
const uWS = require('pronghorn');

const app = uWS
  .App()
  .ws('/rooms/:room', {
    upgrade(res, req, context) {
      const [room, name] = [req.getParameter('room'), req.getQuery('name') || 'guest'];
      const fields = ['key', 'protocol', 'extensions'].map((field) =>
        req.getHeader(`sec-websocket-${field}`),
      );
      res.upgrade({ room, name }, ...fields, context);
    },
    open(ws) {
      ws.subscribe(ws.room);
      app.publish(ws.room, `${ws.name} has come; we are ${app.numSubscribers(ws.room)}`);
    },
    message: (ws, message) => app.publish(ws.room, `${ws.name}: ${Buffer.from(message)}`),
    close: (ws) => app.publish(ws.room, `${ws.name} has left`),
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
