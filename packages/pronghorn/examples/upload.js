// Stores an upload of any size. The client is held back while the disk is busy.
const { createWriteStream } = require('node:fs');
const { App } = require('pronghorn');

App()
  .post('/upload', (res) => {
    const file = createWriteStream('./upload.bin');
    res.onAborted(() => file.destroy());
    res.onData((chunk, isLast) => {
      const isFull = !file.write(new Uint8Array(chunk));
      if (isLast) return file.end(() => res.end(`stored ${file.bytesWritten} bytes`));
      if (isFull) {
        res.pause();
        file.once('drain', () => res.resume());
      }
    });
  })
  .listen(Number(process.env.PORT ?? 3000), () => console.log('listening'));
