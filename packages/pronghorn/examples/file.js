// Sends a large response: as much as fits, and the rest when the client has taken some of it.
const { readFileSync } = require('node:fs');
const { App } = require('pronghorn');

const content = readFileSync(process.execPath).subarray(0, 5_000_000);

App()
  .get('/file', (res) => {
    res.onAborted(() => {});
    const send = (offset) => res.tryEnd(content.subarray(offset), content.length)[0];
    res.onWritable(send);
    send(0);
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
