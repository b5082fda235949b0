'use strict';

// A part of Fastify's own tests through the server that is shaped as the one of node:http. `npm run
// test:fastify` runs all that apply.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { it } = require('node:test');

it("passes Fastify's own test suite", () => {
  // Tests within tests are told by this that their output is for the outer one.
  const env = { ...process.env };
  delete env.NODE_TEST_CONTEXT;
  const run = spawnSync(process.execPath, [path.join(__dirname, 'fastify', 'run.js'), '--short'], {
    env,
    encoding: 'utf8',
  });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  assert.match(run.stdout, /^7 files: [1-9]\d+ tests passed/);
});
