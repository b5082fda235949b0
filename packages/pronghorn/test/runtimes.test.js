'use strict';

// Programs under each runtime: the current one, and Bun and Deno where PRONGHORN_BUN and
// PRONGHORN_DENO give their paths. `npm run test:versions` installs both.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { folder } = require('./support/certificate');
const { checkProgram, serve } = require('./support/programs');

const runtimes = {
  'Node.js': [process.execPath],
  Bun: [process.env.PRONGHORN_BUN],
  Deno: [process.env.PRONGHORN_DENO, 'run', '--allow-all'],
};

for (const [name, command] of Object.entries(runtimes)) {
  const skip = command[0] === undefined && `PRONGHORN_${name.toUpperCase()} is not set`;
  describe(`${name} runs`, { skip }, () => {
    const place = path.join(folder, name);
    fs.mkdirSync(path.join(place, 'node_modules'), { recursive: true });
    fs.symlinkSync(path.join(__dirname, '..'), path.join(place, 'node_modules', 'uWebSockets.js'));
    fs.writeFileSync(path.join(place, 'package.json'), '{}');
    const env = { PATH: process.env.PATH, HOME: place };

    it('a program from CommonJS', () => serve(command, place, env, 'program.cjs', checkProgram));
    it('a program from ES modules, over TLS', () =>
      serve(command, place, env, 'program.mjs', 'SSLApp'));
    it('HTTP/3', () => serve(command, place, env, 'program.mjs', 'H3App'));
    it('all protocols on one port', () => serve(command, place, env, 'program.mjs', 'Server'));
    it('worker threads that end', () => {
      fs.copyFileSync(
        path.join(__dirname, 'support', 'uws-programs', 'threads.cjs'),
        path.join(place, 'threads.cjs'),
      );
      const [program, ...args] = command;
      const run = spawnSync(program, [...args, 'threads.cjs'], {
        cwd: place,
        env,
        encoding: 'utf8',
        timeout: 300_000,
      });
      assert.equal(run.stdout.trim(), 'thread 0 thread thread 0', run.stderr);
      assert.equal(run.status, 0);
    });
  });
}
