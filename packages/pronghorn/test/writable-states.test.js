'use strict';

// Responses as streams: random programs of what handlers do with one, run with node:http and with pronghorn/http, have to come to the same.

const assert = require('node:assert/strict');
const { createHash } = require('node:crypto');
const { once } = require('node:events');
const http = require('node:http');
const { after, before, describe, it } = require('node:test');
const pronghorn = require('../lib/http');
const { ways } = require('./support/frameworks');

/** The client of HTTP/3 is slow. */
const PROGRAMS = { 'http/1.1': 120, h2: 120, h3: 25 };
const SIZES = [0, 1, 100, 20_000, 300_000];

const digest = (content) => createHash('sha256').update(content).digest('hex');

/** Numbers that are the same for the same seed: those of a SHA-256 of it. */
function random(seed) {
  const numbers = Buffer.from(digest(`program ${seed}`), 'hex');
  let at = 0;
  return (below) => numbers[at++ % numbers.length] % below;
}

/** What a handler does, as pairs of a call and its size. */
function program(seed) {
  const next = random(seed);
  // Content often begins with nothing.
  const steps = [[], [['flushHeaders', 0]], [['write', 0]]][next(3)];
  let corked = 0;
  for (let left = 1 + next(8); left > 0; left--) {
    const call = ['write', 'write', 'write', 'flushHeaders', 'cork', 'uncork', 'turn', 'drain'][next(8)];
    // What it does to a response that is not corked is another thing in each version of Node.js.
    if (call === 'uncork' && corked === 0) continue;
    corked += { cork: 1, uncork: -1, drain: -corked }[call] ?? 0;
    steps.push([call, SIZES[next(SIZES.length)]]);
    // As handlers do that heed what `write` returns.
    if (call === 'write' && next(2) === 0) {
      steps.push(['drain', 0]);
      corked = 0;
    }
  }
  steps.push(next(6) === 0 ? ['destroy', 0] : ['end', SIZES[next(SIZES.length)]]);
  if (next(4) === 0) steps.push([['write', 'end', 'turn', 'destroy'][next(4)], SIZES[next(SIZES.length)]]);
  return steps;
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const fill = (size, index) => Buffer.alloc(size, 'a'.charCodeAt(0) + (index % 26));

function uncork(response) {
  for (let left = response.writableCorked; left > 0; left--) response.uncork();
}

/** Runs a program. What can be told apart from outside is returned when all is over. */
async function run(steps, response) {
  const [told, called] = [[], []];
  // Whether it is told before or after the end is a matter of what the pipe takes at once.
  const errors = [];
  for (const event of ['prefinish', 'finish', 'close']) response.on(event, () => told.push(event));
  response.on('error', (error) => errors.push(error.code));
  const over = new Promise((resolve) => response.once('close', resolve));
  for (const [index, [call, size]] of steps.entries()) {
    const back = (error) => (error ? errors.push(`${index}: ${error.code}`) : called.push(index));
    if (call === 'write') response.write(fill(size, index), back);
    else if (call === 'end') response.end(...(size === 0 ? [] : [fill(size, index)]), back);
    else if (call === 'turn') await turn();
    else if (call === 'drain') {
      // It comes, however the content began, once nothing holds it back.
      uncork(response);
      if (response.writableNeedDrain) await Promise.race([once(response, 'drain'), over]);
    } else response[call]();
  }
  uncork(response);
  await over;
  // What is called back after the end.
  for (let turns = 0; turns < 3; turns++) await turn();
  const { writableEnded, writableFinished, destroyed, headersSent, finished } = response;
  // What was written just before may be gone already or not. Each is called back once, in any case.
  const outcome = steps.some(([call]) => call === 'destroy')
    ? {
        called: [...called, ...errors.filter((error) => /^\d/.test(error)).map((error) => parseInt(error))].sort(
          (a, b) => a - b,
        ),
      }
    : { called, errors: errors.sort() };
  return { told, ...outcome, writableEnded, writableFinished, destroyed, headersSent, finished };
}

/** What a server makes of programs, with what the client got. */
function serve(createServer, options) {
  const results = new Map();
  const server = createServer(options, (request, response) => {
    const seed = Number(request.url.slice(1));
    run(program(seed), response).then(
      (result) => results.get(seed)(result),
      (error) => results.get(seed)(error),
    );
  });
  const ask = async (request, seed) => {
    const result = new Promise((resolve) => results.set(seed, resolve));
    const answer = await request(server.address().port, { path: `/${seed}` });
    // What is destroyed after its end may be with the client already or not.
    const calls = program(seed).map(([call]) => call);
    if (calls.includes('end') && calls.lastIndexOf('destroy') > calls.indexOf('end')) return result;
    const isWhole = answer.error === undefined && !answer.aborted;
    return { ...(await result), status: isWhole ? answer.status : 0, body: isWhole ? digest(answer.body) : '' };
  };
  return { server, ask };
}

describe('responses', () => {
  const node = serve(http.createServer, {});
  before(() => new Promise((resolve) => node.server.listen(0, '127.0.0.1', resolve)));
  after(() => node.server.close());
  const expected = new Map();

  for (const { name, protocol, options, request } of ways) {
    it(`are what those of node:http are over ${name}`, async () => {
      const ours = serve(pronghorn.createServer, options);
      await new Promise((resolve) => ours.server.listen(0, '127.0.0.1', resolve));
      for (let seed = 1; seed <= PROGRAMS[protocol]; seed++) {
        // Node.js 22 and 24 write the end of responses in front of content that is corked, or wait for `drain` for ever.
        if (/^v2[24]\./.test(process.version) && program(seed).some(([call]) => call === 'cork')) continue;
        if (!expected.has(seed)) expected.set(seed, await node.ask(ways[0].request, seed));
        assert.deepEqual(
          await ours.ask(request, seed),
          expected.get(seed),
          `seed ${seed}: ${JSON.stringify(program(seed))}`,
        );
      }
      await new Promise((resolve) => ours.server.close(resolve));
    });
  }
});
