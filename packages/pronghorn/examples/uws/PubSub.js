// Clients publish to topics and subscribe to them. Topics match exactly, without wildcards.
const uWS = require('pronghorn');

uWS
  .App()
  .ws('/*', {
    message(ws, message) {
      const { action, topic, value } = JSON.parse(Buffer.from(message));
      if (action === 'subscribe') ws.subscribe(topic);
      else if (action === 'unsubscribe') ws.unsubscribe(topic);
      else if (action === 'publish') ws.publish(topic, JSON.stringify({ topic, value }));
      ws.send(JSON.stringify({ done: action, topics: ws.getTopics() }));
    },
    subscription: (_ws, topic, now, before) =>
      console.log(`${Buffer.from(topic)}: ${before} -> ${now}`),
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
