'use strict';
// Builds the addon and copies it to lib/, where lib/native.js looks for it.
// usage: node scripts/build.js [--debug] [--target PLATFORM] [--addon FILE]
//   --debug     build the debug profile: fast to build, slow to run (or PRONGHORN_PROFILE=debug)
//   --addon     use an addon that cargo has built: libpronghorn_node.so of its target folder
//   --target    a platform of lib/platform.js, such as linux-arm64-gnu (default: this machine's)
// CARGO_FLAGS are passed to cargo.
const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { platformName } = require('../lib/platform');
const { cargo, cargoFor, root } = require('./compilers');

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

function given() {
  try {
    const options = {
      debug: { type: 'boolean' },
      target: { type: 'string' },
      addon: { type: 'string' },
    };
    return parseArgs({ options }).values;
  } catch (error) {
    return fail(error.message);
  }
}

const values = given();
const isDebug = values.debug || process.env.PRONGHORN_PROFILE === 'debug';
const platform = values.target ?? platformName();

/** Builds the addon. Returns the file. */
function build() {
  const how = cargoFor(platform);
  if (how.missing !== undefined) fail(`cannot build for ${platform}: ${how.missing}`);
  const status = cargo(['build', ...(isDebug ? [] : ['--release'])], how);
  if (status !== 0) process.exit(status);
  const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? 'target', how.folder);
  return path.join(target, isDebug ? 'debug' : 'release', 'libpronghorn_node.so');
}

const built =
  values.addon === undefined ? build() : path.resolve(process.env.INIT_CWD ?? '.', values.addon);
if (!fs.existsSync(built)) fail(`missing ${built}: build it with \`make build-debug\``);
const to = path.join(__dirname, '..', 'lib', `pronghorn.${platform}.node`);
// A new file, so that a process that has loaded the old one keeps working.
const part = `${to}.${process.pid}`;
fs.copyFileSync(built, part);
fs.renameSync(part, to);
