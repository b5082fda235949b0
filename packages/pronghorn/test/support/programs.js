'use strict';

// Programs written for uWebSockets.js (uws-programs), run by any runtime, and their expected
// responses.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { tls } = require('./certificate');
const { faces, overHttp2, overHttp3, secure } = require('./clients');

const clear = faces[0].request;
const text = (answer) => answer.body?.toString() ?? answer.error;

/**
 * Starts a program in a folder that has uWebSockets.js, checks its answers, and waits for its end.
 *
 * `check`: called with its port, or the name of an app that program.mjs is to start.
 */
async function serve([command, ...args], place, env, program, check) {
  fs.copyFileSync(path.join(__dirname, 'uws-programs', program), path.join(place, program));
  fs.copyFileSync(tls.key_file_name, path.join(place, 'key.pem'));
  fs.copyFileSync(tls.cert_file_name, path.join(place, 'cert.pem'));
  const kind = typeof check === 'string' ? [check] : [];
  const child = spawn(command, [...args, program, ...kind], {
    cwd: place,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise((resolve, reject) => child.on('exit', resolve).on('error', reject));
  let output = '';
  const port = await new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk) => {
        output += chunk;
        const listening = /listening (\d+)/.exec(output);
        if (listening !== null) resolve(Number(listening[1]));
      });
    }
    ended.then(() => reject(new Error(output)), reject);
  });
  try {
    await (checks[check] ?? check)(port);
    child.kill('SIGTERM');
    assert.equal(await ended, 0, output);
  } finally {
    child.kill('SIGKILL');
    await ended;
  }
}

/** Expected responses of program.cjs. */
async function checkProgram(port) {
  assert.equal(text(await clear(port, { path: '/users/7?page=2' })), '{"name":"Ada","page":"2"}');
  assert.equal((await clear(port, { path: '/users/8' })).status, 404);
  const body = JSON.stringify({ id: '8', name: 'Grace'.repeat(20_000) });
  assert.equal(
    (await clear(port, { path: '/users', method: 'POST', body, pieces: 5 })).status,
    201,
  );
  assert.equal(JSON.parse(text(await clear(port, { path: '/users/8' }))).name.length, 100_000);
  assert.equal(
    text(await clear(port, { path: '/later', headers: { 'user-agent': 'test' } })),
    'later, test',
  );
  assert.equal(text(await clear(port, { path: '/else' })), 'nothing to see here');
}

const answers = (request) => async (port) => {
  const answer = await request(port, { path: '/a/b' });
  assert.equal(text(answer), 'H3llo World from Node.js! /a/b');
  assert.equal(answer.fields['x-method'], 'get');
};

/** Expected responses of program.mjs, by the app that it starts. */
const checks = {
  SSLApp: answers(secure),
  H3App: answers(overHttp3),
  Server: (port) =>
    Promise.all([secure, overHttp2, overHttp3].map((request) => answers(request)(port))),
};

module.exports = { serve, checkProgram };
