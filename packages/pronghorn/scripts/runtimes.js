'use strict';

// Installs versions of Node.js, and other runtimes, from npm packages.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const cache = path.resolve(
  __dirname,
  '..',
  '..',
  '..',
  process.env.CARGO_TARGET_DIR ?? 'target',
  'node-versions',
);
const { arch } = process;
/** Package and path of each runtime. */
const packages = {
  bun: { name: `@oven/bun-linux-${arch === 'arm64' ? 'aarch64' : arch}`, program: 'bin/bun' },
  deno: { name: `@deno/linux-${arch}-glibc`, program: 'deno' },
};

/** Returns the program of a version, or `undefined` if it cannot be installed. */
function runtime(version) {
  const folder = path.join(cache, version);
  const { name, program } = packages[version] ?? {
    name: `node-linux-${arch}`,
    program: 'bin/node',
  };
  const file = path.join(folder, 'node_modules', name, program);
  if (!fs.existsSync(file)) {
    fs.mkdirSync(folder, { recursive: true });
    const quiet = [
      '--ignore-scripts',
      '--no-save',
      '--no-package-lock',
      '--no-audit',
      '--no-fund',
      '--loglevel',
      'error',
    ];
    const wanted = version in packages ? name : `${name}@${version}`;
    spawnSync('npm', ['install', '--prefix', folder, ...quiet, wanted], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  }
  return fs.existsSync(file) ? file : undefined;
}

module.exports = { packages, runtime };
