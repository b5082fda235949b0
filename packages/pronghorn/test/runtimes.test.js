'use strict';

// Bun and Deno, where they are: PRONGHORN_BUN and PRONGHORN_DENO name them. `npm run test:versions` installs both.

const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { folder } = require('./support/certificate');
const { checkProgram, serve } = require('./support/programs');

const runtimes = { Bun: [process.env.PRONGHORN_BUN], Deno: [process.env.PRONGHORN_DENO, 'run', '--allow-all'] };

for (const [name, command] of Object.entries(runtimes)) {
  const skip = command[0] === undefined && `PRONGHORN_${name.toUpperCase()} is not set`;
  describe(`${name} runs`, { skip }, () => {
    const place = path.join(folder, name);
    fs.mkdirSync(path.join(place, 'node_modules'), { recursive: true });
    fs.symlinkSync(path.join(__dirname, '..'), path.join(place, 'node_modules', 'uWebSockets.js'));
    fs.writeFileSync(path.join(place, 'package.json'), '{}');
    const env = { PATH: process.env.PATH, HOME: place };

    it('a program from CommonJS', () => serve(command, place, env, 'program.cjs', checkProgram));
    it('a program from ES modules, over TLS', () => serve(command, place, env, 'program.mjs', 'SSLApp'));
    it('HTTP/3', () => serve(command, place, env, 'program.mjs', 'H3App'));
    it('all protocols on one port', () => serve(command, place, env, 'program.mjs', 'Server'));
  });
}
