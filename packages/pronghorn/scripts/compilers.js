'use strict';
// What compiles for the platforms of lib/platform.js.
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { platformName, TARGETS } = require('../lib/platform');

const root = path.join(__dirname, '..', '..', '..');
/** What an environment variable of cargo or of the crate `cc` calls a Rust target. */
const snake = (rust) => rust.replaceAll('-', '_');

const output = (command, args) => spawnSync(command, args, { cwd: root, encoding: 'utf8' }).stdout ?? '';

/** What cargo calls this machine. */
const host = () => /^host: (.*)$/m.exec(output('rustc', ['-vV']))?.[1];

/**
 * How cargo compiles for a platform: `{ args, env, folder }`, the folder being where it puts what it made, under its own; or `{ missing }`, which
 * says what is not there. The C compiler (aws-lc is C) is the one that `CC_…` names, or a `…-gcc` as Debian calls them; it links, too, unless
 * `CARGO_TARGET_…_LINKER` names another.
 */
function cargoFor(platform) {
  if (!(platform in TARGETS))
    return { missing: `no such platform, these are there: ${Object.keys(TARGETS).join(', ')}` };
  const { rust, libc } = TARGETS[platform];
  // Rust links musl statically unless it is told otherwise, and a shared library cannot be.
  const flags = `${process.env.RUSTFLAGS ?? ''} -C target-feature=-crt-static`.trim();
  const dynamic = libc === 'musl' ? { RUSTFLAGS: flags } : {};
  // For the machine itself, what is built anyway.
  if (platform === platformName() || rust === host()) return { args: [], env: dynamic, folder: '' };
  if (!output('rustup', ['target', 'list', '--installed']).split('\n').includes(rust))
    return { missing: `rustup target add ${rust}` };
  const variable = `CC_${snake(rust)}`;
  const compiler = process.env[variable] ?? `${rust.replace('-unknown', '')}-gcc`;
  if (spawnSync(compiler, ['--version'], { stdio: 'ignore' }).status !== 0)
    return { missing: `no C compiler for it (${variable})` };
  const linker = `CARGO_TARGET_${snake(rust).toUpperCase()}_LINKER`;
  const env = { ...dynamic, [variable]: compiler, [linker]: process.env[linker] ?? compiler };
  return { args: ['--target', rust], env, folder: rust };
}

/** Runs cargo for a platform; its exit status. */
function cargo(command, { args, env }) {
  const flags = (process.env.CARGO_FLAGS ?? '').split(/\s+/).filter(Boolean);
  const { error, status } = spawnSync('cargo', [...command, '-p', 'pronghorn-node', ...args, ...flags], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: 'inherit',
  });
  if (error) throw error;
  return status ?? 1;
}

module.exports = { cargo, cargoFor, root };
