// Exceptions in handlers: the client gets 500, and the process continues.
const { App } = require('pronghorn');

App({ onError: (error, where) => console.log(`${where}: ${error.message}`) })
  .get('/', () => {
    throw new Error('no idea');
  })
  .listen(Number(process.env.PORT ?? 3000), (socket, error) =>
    console.log(socket ? 'listening' : error.message),
  );
