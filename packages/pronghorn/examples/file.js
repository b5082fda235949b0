// A large answer: as much as there is room for, and more when there is more room.
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
