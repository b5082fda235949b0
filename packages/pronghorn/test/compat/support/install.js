'use strict';

// Puts a program of `programs` with its packages from npm into a folder outside of the tree, so
// that it finds no packages but its own.

const { execFileSync } = require('node:child_process');
const { createHash } = require('node:crypto');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { runtime } = require('../../../scripts/runtimes');

const home = path.join(__dirname, '..', '..', '..');
const programs = path.join(__dirname, '..', 'programs');
const cases = path.join(__dirname, '..', 'cases');
/** Minutes that an install or a build may take. */
const MINUTES = 8;

/** PRONGHORN_COMPAT names a folder that is kept, for those who work on a program. */
const kept = process.env.PRONGHORN_COMPAT;
let temporary;

function folder() {
  if (kept !== undefined) {
    fs.mkdirSync(kept, { recursive: true });
    return kept;
  }
  if (temporary === undefined) {
    temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'pronghorn-compat-'));
    process.on('exit', () => fs.rmSync(temporary, { recursive: true, force: true }));
  }
  return temporary;
}

/** The folder that names the packages of a program; one of several may have those of another. */
const packagesOf = (name) => {
  const own = path.join(programs, name);
  return fs.existsSync(own) ? own : path.join(programs, manifestOf(name).program ?? name);
};

const lockOf = (name) => path.join(packagesOf(name), 'package-lock.json');

/** Whether a program runs with the development dependencies of the workspace. */
const isQuick = (name) => !fs.existsSync(lockOf(name));

/** The manifest of a program: what it covers, and what it has to answer. */
const manifestOf = (name) => require(path.join(cases, name));

/** The versions that the lock file of a program, or of the workspace, names. */
function versionsOf(name) {
  const lock = isQuick(name) ? path.join(home, '..', '..', 'package-lock.json') : lockOf(name);
  const { packages } = JSON.parse(fs.readFileSync(lock, 'utf8'));
  return (subject) => {
    // What follows the name says which of its ways is tried.
    const [dependency] = subject.split(' ');
    return (
      packages[`packages/pronghorn/node_modules/${dependency}`] ??
      packages[`node_modules/${dependency}`]
    )?.version;
  };
}

/** Runs a command of an install or a build; its output is shown if it fails. */
function run(command, args, { cwd, env }) {
  try {
    return execFileSync(command, args, {
      cwd,
      env,
      encoding: 'utf8',
      stdio: 'pipe',
      timeout: MINUTES * 60_000,
    });
  } catch (error) {
    throw new Error(`${[command, ...args].join(' ')} failed:\n${error.stdout}\n${error.stderr}`, {
      cause: error,
    });
  }
}

/** Returns where the program is now, and by which Node.js it is run. */
function install(name) {
  const { node, build = [], program = name } = manifestOf(name);
  const executable = node === undefined ? process.execPath : runtime(node);
  if (executable === undefined)
    throw new Error(`there is no Node.js ${node} in npm for this platform`);
  const source = path.join(programs, program);
  if (isQuick(name)) return { place: source, executable };
  const place = path.join(folder(), name);
  const packages = packagesOf(name);
  const wanted = hashOf([source, packages], executable);
  const stamp = path.join(place, '.installed');
  if (fs.existsSync(stamp) && fs.readFileSync(stamp, 'utf8') === wanted)
    return { place, executable };
  fs.rmSync(place, { recursive: true, force: true });
  fs.cpSync(source, place, { recursive: true });
  if (packages !== source) fs.cpSync(packages, place, { recursive: true });
  const env = {
    ...process.env,
    PATH: `${path.dirname(executable)}${path.delimiter}${process.env.PATH}`,
    CI: '1',
    // Nothing is told to those who made the frameworks.
    NEXT_TELEMETRY_DISABLED: '1',
    ASTRO_TELEMETRY_DISABLED: '1',
    NUXT_TELEMETRY_DISABLED: '1',
    DO_NOT_TRACK: '1',
  };
  delete env.NODE_TEST_CONTEXT;
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'];
  run('npm', ['ci', ...quiet], { cwd: place, env });
  fs.symlinkSync(home, path.join(place, 'node_modules', 'pronghorn'));
  for (const [command, ...args] of build) {
    run(path.join(place, 'node_modules', '.bin', command), args, {
      cwd: place,
      env: { ...env, NODE_ENV: 'production' },
    });
  }
  fs.writeFileSync(stamp, wanted);
  return { place, executable };
}

function hashOf(folders, executable) {
  const hash = createHash('sha256').update(executable);
  for (const root of folders) {
    for (const file of fs.readdirSync(root, { recursive: true }).sort()) {
      const whole = path.join(root, file);
      if (fs.statSync(whole).isFile()) hash.update(file).update(fs.readFileSync(whole));
    }
  }
  return hash.digest('hex');
}

/** All programs. */
const names = fs
  .readdirSync(cases)
  .map((file) => path.basename(file, '.js'))
  .sort();

module.exports = { install, isQuick, manifestOf, names, packagesOf, versionsOf };
