// Opens WebSockets in headless Chromium and prints the results, as one JSON object.
//
// usage: node websocket.mjs '{"origin": "https://…", "flags": […], "chromium": path}'
//
// The server echoes each message at /ws; `?deflate` and `?contexts` allow compression, and `?close` closes with a code.
import { launch } from './launch.mjs';

const { origin, flags, chromium, timeoutMs = 60_000 } = JSON.parse(process.argv[2]);

const browser = await launch(chromium, flags);
try {
  const page = await browser.newPage();
  const session = await page.createCDPSession();
  await session.send('Network.enable');
  const handshakes = [];
  session.on('Network.webSocketHandshakeResponseReceived', ({ response }) => {
    handshakes.push({ status: response.status, headers: response.headers });
  });
  await page.goto(`${origin}/bytes/0`, { timeout: timeoutMs });
  const seen = await page.evaluate(async (origin) => {
    const endpoint = origin.replace('https:', 'wss:');
    const open = (path) =>
      new Promise((resolve, reject) => {
        const socket = new WebSocket(endpoint + path, ['other', 'echo']);
        socket.binaryType = 'arraybuffer';
        socket.onopen = () => resolve(socket);
        socket.onerror = () => reject(new Error(`${path} did not open`));
      });
    const next = (socket) =>
      new Promise((resolve, reject) => {
        socket.onmessage = ({ data }) => resolve(data);
        socket.onclose = ({ code }) => reject(new Error(`closed with ${code}`));
      });
    const closed = (socket) =>
      new Promise((resolve) => {
        socket.onclose = ({ code, reason, wasClean }) => resolve({ code, reason, wasClean });
      });
    const isSame = (sent, back) =>
      typeof sent === 'string'
        ? sent === back
        : back instanceof ArrayBuffer && back.byteLength === sent.length && new Uint8Array(back).every((byte, at) => byte === sent[at]);

    // Compressible content, and incompressible content.
    const noise = (size) => {
      const bytes = new Uint8Array(size);
      for (let at = 0; at < size; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
      return bytes;
    };
    const messages = ['', 'x', 'κόσμε 🙂 '.repeat(20_000), 'y'.repeat(1 << 20), new Uint8Array(0), noise(100), noise(1 << 20)];

    const echoed = {};
    for (const query of ['', '?deflate', '?contexts']) {
      const socket = await open(`/ws${query}`);
      const same = [];
      for (const message of messages) {
        const back = next(socket);
        socket.send(message);
        same.push(isSame(message, await back));
      }
      // Many messages at once are echoed in order.
      const order = [];
      const all = new Promise((resolve) => {
        socket.onmessage = ({ data }) => {
          order.push(data);
          if (order.length === 500) resolve();
        };
      });
      for (let number = 0; number < 500; number++) socket.send(`${number}`);
      await all;
      const end = closed(socket);
      socket.close(4001, 'from the page');
      echoed[query] = {
        same,
        inOrder: order.every((text, at) => text === `${at}`),
        protocol: socket.protocol,
        extensions: socket.extensions,
        end: await end,
      };
    }

    const told = await open('/ws?close');
    const ending = closed(told);
    told.send('4321 grüße vom Server');
    const tooLarge = await open('/ws');
    const refusal = closed(tooLarge);
    tooLarge.send(new Uint8Array((1 << 20) + 1));
    const plain = await open('/ws');
    const silent = closed(plain);
    plain.close();
    return {
      echoed,
      told: await ending,
      refused: await refusal,
      silent: await silent,
      elsewhere: await open('/elsewhere').then(
        () => 'open',
        (error) => error.message,
      ),
    };
  }, origin);
  process.stdout.write(JSON.stringify({ ...seen, handshakes }) + '\n');
} finally {
  await browser.close();
}
