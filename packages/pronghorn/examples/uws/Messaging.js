// Sends a message in fragments, when its length is not known at the beginning.
const uWS = require('pronghorn');

uWS
  .App()
  .ws('/*', {
    message(ws, message) {
      const words = Buffer.from(message).toString().split(' ');
      const last = words.pop();
      if (words.length === 0) return ws.send(last);
      words.forEach((word, index) =>
        index === 0 ? ws.sendFirstFragment(`${word} `) : ws.sendFragment(`${word} `),
      );
      return ws.sendLastFragment(last);
    },
  })
  .listen(Number(process.env.PORT ?? 9001), (socket) =>
    console.log(socket ? 'listening' : 'not listening'),
  );
