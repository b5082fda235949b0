'use strict';
// Builds the addon and puts it where lib/native.js looks for it.
// usage: node scripts/build.js [--debug]     (or PRONGHORN_PROFILE=debug; CARGO_FLAGS go to cargo)
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { platformName } = require('../lib/platform');

const root = path.join(__dirname, '..', '..', '..');
const isDebug = process.argv.includes('--debug') || process.env.PRONGHORN_PROFILE === 'debug';
const flags = (process.env.CARGO_FLAGS ?? '').split(/\s+/).filter(Boolean);
const profile = isDebug ? [] : ['--release'];
const cargo = spawnSync('cargo', ['build', '-p', 'pronghorn-node', ...profile, ...flags], {
  cwd: root,
  stdio: 'inherit',
});
if (cargo.error) throw cargo.error;
if (cargo.status !== 0) process.exit(cargo.status ?? 1);

const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? 'target', isDebug ? 'debug' : 'release');
const to = path.join(__dirname, '..', 'lib', `pronghorn.${platformName()}.node`);
// A new file: a process that has the old one loaded goes on with it.
const part = `${to}.${process.pid}`;
fs.copyFileSync(path.join(target, 'libpronghorn_node.so'), part);
fs.renameSync(part, to);
