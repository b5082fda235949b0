'use strict';

// Responses as streams: random sequences of operations on a response must have the same results
// with node:http and with pronghorn/http.

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

/** Deterministic numbers from the SHA-256 of a seed. */
function random(seed) {
  const numbers = Buffer.from(digest(`program ${seed}`), 'hex');
  let at = 0;
  return (below) => numbers[at++ % numbers.length] % below;
}

/** Random operations of a handler, as pairs of a call and its size. */
function program(seed) {
  const next = random(seed);
  // The body often starts with an empty chunk.
  const steps = [[], [['flushHeaders', 0]], [['write', 0]]][next(3)];
  let corked = 0;
  for (let left = 1 + next(8); left > 0; left--) {
    const call = ['write', 'write', 'write', 'flushHeaders', 'cork', 'uncork', 'turn', 'drain'][
      next(8)
    ];
    // Its effect on a response that is not corked differs between versions of Node.js.
    if (call === 'uncork' && corked === 0) continue;
    corked += { cork: 1, uncork: -1, drain: -corked }[call] ?? 0;
    steps.push([call, SIZES[next(SIZES.length)]]);
    // As handlers do that respect the result of `write`.
    if (call === 'write' && next(2) === 0) {
      steps.push(['drain', 0]);
      corked = 0;
    }
  }
  steps.push(next(6) === 0 ? ['destroy', 0] : ['end', SIZES[next(SIZES.length)]]);
  if (next(4) === 0)
    steps.push([['write', 'end', 'turn', 'destroy'][next(4)], SIZES[next(SIZES.length)]]);
  return steps;
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const fill = (size, index) => Buffer.alloc(size, 'a'.charCodeAt(0) + (index % 26));

function uncork(response) {
  for (let left = response.writableCorked; left > 0; left--) response.uncork();
}

/** Runs a program and returns the observable results after its end. */
async function run(steps, response) {
  const [told, called] = [[], []];
  // Whether it is emitted before or after the end depends on how much the pipe accepts at once.
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
      // It is emitted, however the body started, once nothing is buffered.
      uncork(response);
      if (response.writableNeedDrain) await Promise.race([once(response, 'drain'), over]);
    } else response[call]();
  }
  uncork(response);
  await over;
  // Callbacks after the end.
  for (let turns = 0; turns < 3; turns++) await turn();
  const { writableEnded, writableFinished, destroyed, headersSent, finished } = response;
  // Data written just before may have been sent or not. Each callback is called once in any case.
  const outcome = steps.some(([call]) => call === 'destroy')
    ? {
        called: [
          ...called,
          ...errors.filter((error) => /^\d/.test(error)).map((error) => parseInt(error)),
        ].sort((a, b) => a - b),
      }
    : { called, errors: errors.sort() };
  return { told, ...outcome, writableEnded, writableFinished, destroyed, headersSent, finished };
}

/** A server's results for the programs, with what the client received. */
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
    // A response destroyed after its end may have reached the client or not.
    const calls = program(seed).map(([call]) => call);
    if (calls.includes('end') && calls.lastIndexOf('destroy') > calls.indexOf('end')) return result;
    const isWhole = answer.error === undefined && !answer.aborted;
    return {
      ...(await result),
      status: isWhole ? answer.status : 0,
      body: isWhole ? digest(answer.body) : '',
    };
  };
  return { server, ask };
}

describe('responses', () => {
  const node = serve(http.createServer, {});
  before(() => new Promise((resolve) => node.server.listen(0, '127.0.0.1', resolve)));
  after(() => node.server.close());
  const expected = new Map();

  for (const { name, protocol, options, request } of ways) {
    it(`have the stream states of node:http over ${name}`, async () => {
      const ours = serve(pronghorn.createServer, options);
      await new Promise((resolve) => ours.server.listen(0, '127.0.0.1', resolve));
      for (let seed = 1; seed <= PROGRAMS[protocol]; seed++) {
        // Node.js 22 and 24 write the end of responses before corked data, or wait for `drain`
        // forever.
        if (/^v2[24]\./.test(process.version) && program(seed).some(([call]) => call === 'cork'))
          continue;
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
