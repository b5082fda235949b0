'use strict';

// Runs the WebSocket examples, named after those of uWebSockets.js, and checks their behaviour.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { it } = require('node:test');
const { freePort } = require('./support/clients');
const { open } = require('./support/websocket');

const examples = path.join(__dirname, '..', 'examples', 'uws');
const clear = { protocol: 'http/1.1', secure: false };

const says = (ws, what) =>
  ws.command({ text: typeof what === 'string' ? what : JSON.stringify(what) });

const checks = {
  'WebSockets.js': async (connect) => {
    const ws = await connect({ deflate: true });
    const answer = await says(ws, 'again '.repeat(100)).next();
    assert.deepEqual([answer.message.toString(), answer.compressed], ['again '.repeat(100), true]);
  },
  'Upgrade.js': async (connect) =>
    assert.equal(await (await connect({ path: '/here' })).text(), 'you are at /here'),
  'UpgradeAsync.js': async (connect) => {
    assert.equal(await (await connect({ path: '/?token=secret' })).text(), 'hello alice');
    assert.equal((await connect({ path: '/?token=wrong' })).status, 401);
  },
  'Backpressure.js': async (connect) => {
    const ws = await connect();
    let received = 0;
    for (;;) {
      const event = await ws.next();
      if (event.message === undefined) {
        assert.deepEqual(event, { closed: 1000, reason: 'that is all' });
        break;
      }
      received += event.message.length;
    }
    assert.equal(received, 10_000_000);
  },
  'SlowReceiver.js': async (_connect, port, wrote) => {
    // A client that opens a connection and reads nothing.
    const head = [
      'GET / HTTP/1.1',
      'host: x',
      'connection: upgrade',
      'upgrade: websocket',
      'sec-websocket-version: 13',
    ];
    const socket = net.connect(port, '127.0.0.1').pause();
    socket.on('error', () => {});
    socket.write([...head, 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==', '', ''].join('\r\n'));
    await wrote(/dropped 65536 bytes\nclosed/);
    socket.destroy();
  },
  'Broadcast.js': async (connect) => {
    const [one, two] = [await connect(), await connect()];
    for (const ws of [one, two]) assert.match(await ws.text(), /^tick \d+$/);
  },
  'PubSub.js': async (connect, _port, wrote) => {
    const [one, two] = [await connect(), await connect()];
    const topic = 'home/temperature';
    assert.deepEqual(JSON.parse(await says(one, { action: 'subscribe', topic }).text()), {
      done: 'subscribe',
      topics: [topic],
    });
    await says(two, { action: 'publish', topic, value: 21 }).text();
    assert.deepEqual(JSON.parse(await one.text()), { topic, value: 21 });
    assert.deepEqual(JSON.parse(await says(one, { action: 'unsubscribe', topic }).text()), {
      done: 'unsubscribe',
      topics: [],
    });
    await wrote(/home\/temperature: 0 -> 1\nhome\/temperature: 1 -> 0/);
  },
  'Chat.js': async (connect) => {
    const alice = await connect({ path: '/rooms/kitchen?name=alice' });
    assert.equal(await alice.text(), 'alice has come; we are 1');
    const bob = await connect({ path: '/rooms/kitchen?name=bob' });
    const other = await connect({ path: '/rooms/hall?name=carol' });
    assert.equal(await other.text(), 'carol has come; we are 1');
    for (const ws of [alice, bob]) assert.equal(await ws.text(), 'bob has come; we are 2');
    says(bob, 'hello');
    for (const ws of [alice, bob]) assert.equal(await ws.text(), 'bob: hello');
    bob.command({ close: [1000, ''] });
    assert.equal(await alice.text(), 'bob has left');
  },
  'RateLimit.js': async (connect) => {
    const ws = await connect();
    for (let count = 0; count < 10; count++)
      assert.equal(await says(ws, String(count)).text(), String(count));
    assert.deepEqual(await says(ws, 'one more').next(), {
      closed: 1008,
      reason: 'too many messages',
    });
  },
  'Messaging.js': async (connect) => {
    const ws = await connect();
    const answer = await says(ws, 'one two three').next();
    assert.deepEqual([answer.message.toString(), answer.frames], ['one two three', 3]);
    assert.equal(await says(ws, 'one').text(), 'one');
  },
};

for (const name of fs.readdirSync(examples)) {
  it(name, async () => {
    const port = await freePort();
    const env = { ...process.env, PORT: String(port), EVERY: '20' };
    const child = spawn(process.execPath, [path.join(examples, name)], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    let look = () => {};
    const ended = new Promise((resolve) => child.on('exit', resolve));
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => {
        output += data;
        look();
      });
    }
    /** Waits until the example has written something. */
    const wrote = (pattern) =>
      new Promise((resolve, reject) => {
        look = () => pattern.test(output) && resolve();
        look();
        ended.then(() => reject(new Error(`${name} has ended: ${output}`)));
      });
    try {
      await wrote(/listening/);
      assert.ok(name in checks, 'every example has a check');
      await checks[name]((options) => open(port, clear, options), port, wrote);
    } finally {
      child.kill('SIGKILL');
      await ended.catch(() => {});
    }
  });
}
