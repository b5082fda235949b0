'use strict';
// Compilers for the platforms of lib/platform.js.
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { platformName, TARGETS } = require('../lib/platform');

const root = path.join(__dirname, '..', '..', '..');
/** Returns a Rust target in the spelling of environment variables of cargo and the crate `cc`. */
const snake = (rust) => rust.replaceAll('-', '_');

const output = (command, args) =>
  spawnSync(command, args, { cwd: root, encoding: 'utf8' }).stdout ?? '';

/** Returns the Rust target of this machine. */
const host = () => /^host: (.*)$/m.exec(output('rustc', ['-vV']))?.[1];

/**
 * Returns how cargo compiles for a platform: `{ args, env, folder }`, where `folder` is the output
 * folder under cargo's target folder; or `{ missing }`, which names what is not installed. The C
 * compiler (aws-lc is C) is the one in `CC_…`, or `…-gcc` as Debian names it. It also links,
 * unless `CARGO_TARGET_…_LINKER` names another.
 */
function cargoFor(platform) {
  if (!(platform in TARGETS))
    return { missing: `unknown platform: use one of ${Object.keys(TARGETS).join(', ')}` };
  const { rust, libc } = TARGETS[platform];
  // Rust links musl statically by default, which is impossible for a shared library.
  const flags = `${process.env.RUSTFLAGS ?? ''} -C target-feature=-crt-static`.trim();
  const dynamic = libc === 'musl' ? { RUSTFLAGS: flags } : {};
  // This machine: the default build.
  if (platform === platformName() || rust === host()) return { args: [], env: dynamic, folder: '' };
  if (!output('rustup', ['target', 'list', '--installed']).split('\n').includes(rust))
    return { missing: `rustup target add ${rust}` };
  const variable = `CC_${snake(rust)}`;
  const compiler = process.env[variable] ?? `${rust.replace('-unknown', '')}-gcc`;
  if (spawnSync(compiler, ['--version'], { stdio: 'ignore' }).status !== 0)
    return { missing: `no C compiler for the platform (set ${variable})` };
  const linker = `CARGO_TARGET_${snake(rust).toUpperCase()}_LINKER`;
  const env = { ...dynamic, [variable]: compiler, [linker]: process.env[linker] ?? compiler };
  return { args: ['--target', rust], env, folder: rust };
}

/** Runs cargo for a platform. Returns its exit status. */
function cargo(command, { args, env }) {
  const flags = (process.env.CARGO_FLAGS ?? '').split(/\s+/).filter(Boolean);
  const { error, status } = spawnSync(
    'cargo',
    [...command, '-p', 'pronghorn-node', ...args, ...flags],
    {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: 'inherit',
    },
  );
  if (error) throw error;
  return status ?? 1;
}

module.exports = { cargo, cargoFor, root };
