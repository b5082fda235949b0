'use strict';
// Compiles the addon for each platform of lib/platform.js whose Rust target and C compiler are
// installed, and lists what the other platforms need.
// usage: node scripts/check-targets.js
const { TARGETS } = require('../lib/platform');
const { cargo, cargoFor } = require('./compilers');

let failed = false;
for (const platform of Object.keys(TARGETS)) {
  const how = cargoFor(platform);
  let result;
  if (how.missing !== undefined) result = `not checked: ${how.missing}`;
  else {
    const status = cargo(['check'], how);
    result = status === 0 ? 'compiles' : 'FAILED';
    failed ||= status !== 0;
  }
  console.log(`${platform.padEnd(18)} ${result}`);
}
process.exit(failed ? 1 : 0);
