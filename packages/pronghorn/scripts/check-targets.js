'use strict';
// Compiles the addon for each platform of lib/platform.js whose Rust target is installed (`rustup target add …`), as far as its C compiler is
// there, too (aws-lc is C). Says which could not be compiled for want of either. usage: node scripts/check-targets.js
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { TARGETS } = require('../lib/platform');

const root = path.join(__dirname, '..', '..', '..');
const flags = (process.env.CARGO_FLAGS ?? '').split(/\s+/).filter(Boolean);
const listed = spawnSync('rustup', ['target', 'list', '--installed'], { cwd: root, encoding: 'utf8' });
const installed = (listed.stdout ?? '').split('\n');
const host = /^host: (.*)$/m.exec(spawnSync('rustc', ['-vV'], { cwd: root, encoding: 'utf8' }).stdout ?? '')?.[1];
const hasCompiler = (rust) => {
  const name = process.env[`CC_${rust.replaceAll('-', '_')}`] ?? `${rust.replace('-unknown', '')}-gcc`;
  return spawnSync(name, ['--version'], { stdio: 'ignore' }).status === 0;
};

let failed = false;
for (const [name, { rust }] of Object.entries(TARGETS)) {
  let result;
  if (!installed.includes(rust)) result = `not checked: rustup target add ${rust}`;
  else if (rust !== host && !hasCompiler(rust))
    result = `not checked: no C compiler for it (CC_${rust.replaceAll('-', '_')})`;
  else {
    // For the machine itself, what is built anyway.
    const target = rust === host ? [] : ['--target', rust];
    const check = spawnSync('cargo', ['check', '-p', 'pronghorn-node', ...target, ...flags], {
      cwd: root,
      stdio: 'inherit',
    });
    result = check.status === 0 ? 'compiles' : 'FAILED';
    failed ||= check.status !== 0;
  }
  console.log(`${name.padEnd(18)} ${result}`);
}
process.exit(failed ? 1 : 0);
