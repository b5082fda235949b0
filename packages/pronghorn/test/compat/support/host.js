'use strict';
// Runs a program behind each door: node:http and pronghorn side by side.
// usage: node host.js PROGRAM DOORS…     (a child process of running.js, which it tells the ports)

const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const path = require('node:path');
const { pathToFileURL } = require('node:url');

const [program, ...wanted] = process.argv.slice(2);
const credentials = () => ({
  key: fs.readFileSync(process.env.PRONGHORN_COMPAT_KEY),
  cert: fs.readFileSync(process.env.PRONGHORN_COMPAT_CERT),
});

/** What a program is given: how servers are made here. A listener, or options and a listener, as node:http takes them. */
function doorOf(name) {
  const isSecure = !name.endsWith('in clear text');
  const isPronghorn = !name.startsWith('node:');
  const tls = isSecure ? credentials() : {};
  const make = isPronghorn
    ? require('../../../lib/http').createServer
    : (isSecure ? https : http).createServer;
  return { name, isPronghorn, isSecure, tls, createServer: (listener) => make(tls, listener) };
}

async function open(start, name) {
  const door = doorOf(name);
  const made = await start(door);
  const server = typeof made === 'function' ? door.createServer(made) : (made.server ?? made);
  if (server.address() === null)
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, port: server.address().port, seen: made.seen };
}

async function main() {
  const file = ['program.js', 'program.mjs']
    .map((name) => path.join(program, name))
    .find((name) => fs.existsSync(name));
  const { default: start } = await import(pathToFileURL(file));
  const opened = new Map();
  for (const name of wanted) opened.set(name, await open(start, name));
  process.on('message', async ({ id, seen, count, end }) => {
    if (seen !== undefined) return process.send({ id, value: await opened.get(seen).seen(count) });
    if (!end) return;
    // A server that never closes shows: the parent waits for the end.
    await Promise.all(
      [...opened.values()].map(({ server }) => new Promise((resolve) => server.close(resolve))),
    );
    process.exit(0);
  });
  process.send({ ports: Object.fromEntries([...opened].map(([name, { port }]) => [name, port])) });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
