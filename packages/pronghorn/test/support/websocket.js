'use strict';

// Independent WebSocket clients over the three protocols: see websocket_client.py, which runs in its
// own process.

const { spawn } = require('node:child_process');
const path = require('node:path');
const readline = require('node:readline');
const { python } = require('./h3');

let running;

function start() {
  const child = spawn(python, [path.join(__dirname, 'websocket_client.py')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const clients = new Map();
  const fail = (reason) => {
    const error = `the WebSocket clients of the tests do not run: run scripts/setup, or set PRONGHORN_PYTHON (${reason})`;
    for (const client of clients.values()) client._tell({ error });
  };
  child.on('error', (error) => fail(error.message));
  child.on('exit', (code) => fail(`it ended with ${code}`));
  child.stdin.on('error', () => {});
  readline.createInterface({ input: child.stdout }).on('line', (line) => {
    const event = JSON.parse(line);
    clients.get(event.id)?._tell(event);
  });
  for (const part of [child, child.stdin, child.stdout]) part.unref();
  return { child, clients, last: 0 };
}

/** A client. `next` returns received events in order. */
class Client {
  constructor() {
    running ??= start();
    this._id = ++running.last;
    this._events = [];
    this._waiting = [];
    running.clients.set(this._id, this);
  }

  _tell({ id: _id, ...event }) {
    if (event.message !== undefined) event.message = Buffer.from(event.message, 'base64');
    if (this._waiting.length > 0) this._waiting.shift()(event);
    else this._events.push(event);
  }

  /** Returns the next event. */
  next() {
    if (this._events.length > 0) return Promise.resolve(this._events.shift());
    running.child.stdout.ref();
    return new Promise((resolve) => this._waiting.push(resolve)).finally(() => {
      if ([...running.clients.values()].every((client) => client._waiting.length === 0))
        running.child.stdout.unref();
    });
  }

  /** Returns the text of the next message. */
  async text() {
    const event = await this.next();
    return event.message?.toString() ?? JSON.stringify(event);
  }

  /** Skips events until this one. */
  async until(wanted) {
    for (;;) {
      const event = await this.next();
      if (wanted(event) || event.error !== undefined) return event;
    }
  }

  command(wanted) {
    running.child.stdin.write(`${JSON.stringify({ id: this._id, ...wanted })}\n`);
    return this;
  }
}

/** Opens a connection. Returns the client after the response, with `status` and `fields`. */
async function open(
  port,
  { protocol, secure },
  { path: target = '/', headers = {}, deflate = false } = {},
) {
  const client = new Client();
  client.command({
    open: { protocol, secure, port, path: target, headers: Object.entries(headers), deflate },
  });
  const { status, headers: fields, error } = await client.next();
  return Object.assign(client, { status, error, fields: Object.fromEntries(fields ?? []) });
}

module.exports = { open };
