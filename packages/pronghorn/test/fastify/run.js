'use strict';
// Runs Fastify's own test files that open servers, with pronghorn's servers instead of node:http's.
// Usage: node test/fastify/run.js [--short] [file …]
// not-applicable.json lists the tests that cannot apply, with reasons. Any other failure fails the
// run, and so does a listed test that passes.

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const folder = path.join(path.dirname(require.resolve('fastify/package.json')), 'test');
const reasons = JSON.parse(fs.readFileSync(path.join(__dirname, 'not-applicable.json'), 'utf8'));
/** The files that `npm test` runs: one of each kind. */
const SHORT = [
  'server.test.js',
  'listen.1.test.js',
  'stream.1.test.js',
  'http-methods/get.test.js',
  '404s.test.js',
  'custom-http-server.test.js',
  'handler-timeout.test.js',
];
const FILE_SECONDS = 120;

const [first, ...others] = process.argv.slice(2);
const named = first === undefined ? [] : first === '--short' ? SHORT : [first, ...others];
const files = named.length > 0 ? named : opening(folder);

/** Files that open servers; injected requests use none. Files over node:http2 use its servers. */
function opening(root) {
  return fs
    .readdirSync(root, { recursive: true })
    .map((name) => name.replaceAll(path.sep, '/'))
    .filter((name) => name.endsWith('.test.js') && !name.startsWith('http2/'))
    .filter((name) => fs.readFileSync(path.join(root, name), 'utf8').includes('.listen('))
    .sort();
}

function run(file) {
  return new Promise((resolve) => {
    const flags = ['--require', path.join(__dirname, 'preload.js'), '--test-reporter=tap'];
    const child = spawn(process.execPath, [...flags, file], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    child.stdout.on('data', (data) => (output += data));
    child.stderr.on('data', (data) => (output += data));
    const timer = setTimeout(() => child.kill('SIGKILL'), FILE_SECONDS * 1000);
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      const at = (pattern) => [...output.matchAll(pattern)].map((match) => match[1].trim());
      resolve({
        code,
        signal,
        output,
        failed: at(/^not ok \d+ - (.*?)(?: # .*)?$/gm),
        passed: at(/^ok \d+ - (.*?)(?: # .*)?$/gm).length,
      });
    });
  });
}

async function main() {
  let [passed, excused] = [0, 0];
  const wrong = [];
  for (const file of files) {
    const known = reasons[file] ?? {};
    if (typeof known === 'string') {
      excused++;
      continue;
    }
    const result = await run(file);
    passed += result.passed;
    const ending = result.signal === null ? '' : `, not done within ${FILE_SECONDS} s`;
    if (named.length === 0)
      console.log(`${file}: ${result.passed} passed, ${result.failed.length} failed${ending}`);
    const unknown = result.failed.filter((name) => !(name in known));
    const gone = Object.keys(known).filter((name) => !result.failed.includes(name));
    excused += result.failed.length - unknown.length;
    for (const name of unknown) wrong.push(`${file}: ${name}`);
    for (const name of gone) wrong.push(`${file}: ${name} passes; remove its reason`);
    if (result.signal !== null) wrong.push(`${file}: not done within ${FILE_SECONDS} s`);
    else if (result.code !== 0 && result.failed.length === 0) {
      wrong.push(`${file}: ended with ${result.code}: ${result.output.slice(0, 300)}`);
    }
  }
  console.log(
    `${files.length} files: ${passed} tests passed, ${excused} cannot apply, ${wrong.length} are wrong`,
  );
  for (const line of wrong) console.log(`  ${line}`);
  process.exitCode = wrong.length === 0 ? 0 : 1;
}

main();
