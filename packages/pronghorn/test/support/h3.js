'use strict';

// The HTTP/3 client of the tests: aioquic, in its own process.

const { spawn } = require('node:child_process');
const path = require('node:path');
const readline = require('node:readline');

const root = path.join(__dirname, '..', '..', '..', '..');
const python = process.env.PRONGHORN_PYTHON ?? path.join(root, '.venv', 'bin', 'python');

let running;

function start() {
  const child = spawn(python, [path.join(__dirname, 'h3_client.py')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const waiting = new Map();
  let last = 0;
  let error;
  // Pending and later requests fail.
  const fail = (reason) => {
    error ??= `the HTTP/3 client of the tests does not run: run scripts/setup, or set PRONGHORN_PYTHON (${reason})`;
    for (const resolve of waiting.values()) resolve({ error });
    waiting.clear();
  };
  child.on('error', (error) => fail(error.message));
  child.on('exit', (code) => fail(`it ended with ${code}`));
  child.stdin.on('error', () => {});
  readline.createInterface({ input: child.stdout }).on('line', (line) => {
    const answer = JSON.parse(line);
    waiting.get(answer.id)(answer);
    waiting.delete(answer.id);
    // Nothing is pending: the process may exit.
    if (waiting.size === 0) child.stdout.unref();
  });
  child.unref();
  child.stdin.unref();
  child.stdout.unref();
  return (wanted) =>
    new Promise((resolve) => {
      if (error !== undefined) return resolve({ error });
      const id = ++last;
      waiting.set(id, resolve);
      child.stdout.ref();
      child.stdin.write(`${JSON.stringify({ id, ...wanted })}\n`);
    });
}

/** Sends a request; see h3_client.py. */
async function request(
  port,
  {
    method = 'GET',
    path: target = '/',
    headers = {},
    body,
    late,
    host = 'localhost',
    ...more
  } = {},
) {
  running ??= start();
  const fields = Object.entries(headers).flatMap(([name, value]) =>
    [value].flat().map((line) => [name, line]),
  );
  const encoded = (bytes) => (bytes === undefined ? null : Buffer.from(bytes).toString('base64'));
  const content = { body: encoded(body), late: encoded(late) };
  const answer = await running({
    port,
    host,
    method,
    path: target,
    headers: fields,
    ...content,
    ...more,
  });
  if (answer.body !== undefined) answer.body = Buffer.from(answer.body, 'base64');
  return answer;
}

module.exports = { request, python };
