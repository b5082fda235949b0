'use strict';

// Installs the packed packages with npm, in empty folders without compiler and network.

const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { folder } = require('./support/certificate');
const { checkProgram, serve } = require('./support/programs');
const { glibcVersion, platformName } = require('../lib/platform');

const home = path.join(__dirname, '..');
const { version } = require('../package.json');
const binary = `pronghorn-${platformName()}`;
const packed = path.join(folder, 'packed');
const [own, ofPlatform] = ['pronghorn', binary].map((name) =>
  path.join(packed, `${name}-${version}.tgz`),
);

/** The environment variables that npm itself needs. */
const bin = path.join(folder, 'bin');
const bare = { PATH: bin, HOME: folder };

function link(name) {
  const found = process.env.PATH.split(path.delimiter).find((entry) =>
    fs.existsSync(path.join(entry, name)),
  );
  fs.symlinkSync(fs.realpathSync(path.join(found, name)), path.join(bin, name));
}

/** Returns a new folder after `npm install`. */
function installed(name, ...wanted) {
  const place = path.join(folder, name);
  fs.mkdirSync(place);
  fs.writeFileSync(path.join(place, 'package.json'), '{ "private": true }');
  const quiet = [
    '--offline',
    '--no-audit',
    '--no-fund',
    '--loglevel',
    'error',
    '--cache',
    path.join(folder, 'cache'),
  ];
  execFileSync('npm', ['install', ...quiet, ...wanted], {
    cwd: place,
    env: bare,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  return place;
}

/** Runs a program to its end. Returns its output. */
function run(place, program, ...flags) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...flags, '--eval', program], {
    cwd: place,
    env: bare,
    encoding: 'utf8',
  });
  return { status, output: (stdout + stderr).trim() };
}

fs.mkdirSync(bin);
for (const name of ['node', 'npm', 'sh']) link(name);
execFileSync(process.execPath, [path.join(home, 'scripts', 'pack.js'), packed], {
  stdio: ['ignore', 'ignore', 'inherit'],
});

describe('a program for uWebSockets.js, with pronghorn installed under that name,', () => {
  let place;
  before(() => {
    place = installed('alias', `uWebSockets.js@file:${own}`, ofPlatform);
  });

  it('runs from CommonJS', () =>
    serve([process.execPath], place, bare, 'program.cjs', checkProgram));
  it('runs from ES modules, over TLS', () =>
    serve([process.execPath], place, bare, 'program.mjs', 'SSLApp'));
  it('runs over HTTP/3', () => serve([process.execPath], place, bare, 'program.mjs', 'H3App'));
});

describe('the package', () => {
  it('has no install script and no development files', () => {
    const manifest = JSON.parse(
      fs.readFileSync(path.join(packed, 'pronghorn', 'package.json'), 'utf8'),
    );
    assert.equal(manifest.scripts, undefined);
    assert.equal(manifest.devDependencies, undefined);
    // Binaries of each platform that was built here, this one included.
    const built = fs.readdirSync(path.join(home, 'lib')).filter((file) => file.endsWith('.node'));
    const names = built.map((file) => file.replace(/^pronghorn\.(.*)\.node$/, 'pronghorn-$1'));
    assert.ok(names.includes(binary), names.join());
    assert.deepEqual(
      manifest.optionalDependencies,
      Object.fromEntries(names.map((name) => [name, version])),
    );
    const files = execFileSync('tar', ['tzf', own], { encoding: 'utf8' }).trim().split('\n');
    assert.ok(
      files.includes('package/LICENSE-MIT') && files.includes('package/index.d.mts'),
      files.join(),
    );
    assert.deepEqual(
      files.filter((file) => /\.node$|test|scripts/.test(file)),
      [],
    );
  });

  it('can be installed twice, under both names, and both work in one process and in threads', () => {
    const place = installed('both', own, `uWebSockets.js@file:${own}`, ofPlatform);
    const program = `
      const { Worker, isMainThread } = require('node:worker_threads');
      const packages = ['pronghorn', 'uWebSockets.js'].map((name) => require(name));
      for (const { App, us_socket_local_port } of packages) {
        const app = App().get('/*', (res) => res.end());
        app.listen(0, (token) => us_socket_local_port(token) > 0 && app.close());
      }
      if (isMainThread) new Worker(process.argv.at(-1), { eval: true, argv: [''] }).on('exit', (code) => console.log(packages[0] === packages[1], code));`;
    const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', program, program], {
      cwd: place,
      env: bare,
      encoding: 'utf8',
    });
    assert.deepEqual([status, stdout.trim(), stderr], [0, 'false 0', '']);
  });

  it('is what `npm pack` creates in a clone, with the binary that was built there', () => {
    execFileSync(
      'npm',
      [
        'pack',
        '--ignore-scripts',
        '--no-update-notifier',
        '--loglevel',
        'error',
        '--pack-destination',
        folder,
      ],
      {
        cwd: home,
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    );
    const place = installed('plain', path.join(folder, `pronghorn-${version}.tgz`));
    assert.deepEqual(run(place, "console.log(typeof require('pronghorn').H3App)"), {
      status: 0,
      output: 'function',
    });
  });

  it('has development dependencies that support the running Node.js version', () => {
    const { status, stderr } = spawnSync(
      'npm',
      ['ci', '--dry-run', '--offline', '--ignore-scripts'],
      {
        cwd: path.join(home, '..', '..'),
        encoding: 'utf8',
      },
    );
    assert.deepEqual(
      [status, stderr.split('\n').filter((line) => line.includes('EBADENGINE'))],
      [0, []],
    );
  });

  it('needs no newer glibc than it declares', { skip: glibcVersion() === undefined }, () => {
    const symbols = fs
      .readFileSync(path.join(packed, binary, `pronghorn.${platformName()}.node`))
      .toString('latin1');
    const minors = [...symbols.matchAll(/GLIBC_2\.(\d+)/g)].map(([, minor]) => Number(minor));
    const said = /glibc 2\.(\d+) or later/.exec(
      fs.readFileSync(path.join(home, 'README.md'), 'utf8').replaceAll('\n', ' '),
    );
    assert.ok(
      minors.length > 0 && Math.max(...minors) <= Number(said[1]),
      `${Math.max(...minors)}`,
    );
  });
});

describe('without a working binary, the error says what to do:', () => {
  const load = "try { require('pronghorn') } catch (error) { console.log(error.message) }";
  let place;
  let platformPackage;
  before(() => {
    place = installed('broken', own, ofPlatform);
    platformPackage = path.join(place, 'node_modules', binary);
  });

  /** Loads the package with a faked platform. */
  function elsewhere(platform, arch) {
    const fake = path.join(place, `${platform}-${arch}.cjs`);
    fs.writeFileSync(
      fake,
      `for (const [name, value] of Object.entries({ platform: '${platform}', arch: '${arch}' })) Object.defineProperty(process, name, { value });`,
    );
    return run(place, load, '--require', fake).output;
  }

  it('another operating system or processor', () => {
    assert.match(
      elsewhere('win32', 'x64'),
      /^pronghorn has no binary for win32-x64: it runs on Linux \(.*\): run it in WSL 2/,
    );
    assert.match(
      elsewhere('darwin', 'arm64'),
      /no binary for darwin-arm64: it runs on Linux .*in a Linux container/,
    );
    assert.match(
      elsewhere('linux', 's390x'),
      /no binary for linux-s390x-\w+: it runs on Linux \(linux-x64-gnu, .*\)$/,
    );
  });

  it('only the pronghorn tarball', () => {
    const alone = installed('alone', own);
    const { output } = run(alone, load);
    const both = [own, ofPlatform].map((file) => `./${path.basename(file)}`).join(' ');
    assert.ok(output.includes(`it is the package ${binary} ${version}; to install`), output);
    assert.ok(output.endsWith(`npm install ${both}`), output);
    // The advice in the message works.
    const quiet = ['--offline', '--loglevel', 'error', '--cache', path.join(folder, 'cache')];
    execFileSync('npm', ['install', ...quiet, own, ofPlatform], {
      cwd: alone,
      env: bare,
      stdio: 'ignore',
    });
    assert.equal(run(alone, "console.log(typeof require('pronghorn').App)").output, 'function');
  });

  it('an omitted optional dependency', (context) => {
    const other = process.arch === 'arm64' ? 'x64' : 'arm64';
    // As npm records packages from a registry.
    const notes = path.join(place, 'node_modules', '.package-lock.json');
    const text = fs.readFileSync(notes, 'utf8');
    context.after(() => fs.writeFileSync(notes, text));
    fs.writeFileSync(
      notes,
      text.replaceAll('"resolved": "file:', '"resolved": "https://registry.example/'),
    );
    assert.match(
      elsewhere('linux', other),
      /is not installed: it is the package pronghorn-linux-.* an optional dependency.*without --omit=optional.*with tarballs, give npm that of pronghorn-linux-/,
    );
  });

  it('a binary of another version', (context) => {
    const file = path.join(platformPackage, 'package.json');
    const manifest = fs.readFileSync(file, 'utf8');
    context.after(() => fs.writeFileSync(file, manifest));
    fs.writeFileSync(file, manifest.replace(`"version": "${version}"`, '"version": "0.0.9"'));
    assert.match(
      run(place, load).output,
      /needs pronghorn-\S+ of the same version, and found 0\.0\.9: remove node_modules/,
    );
  });

  it('a glibc that is too old', { skip: glibcVersion() === undefined }, (context) => {
    const file = path.join(platformPackage, `pronghorn.${platformName()}.node`);
    const binary = fs.readFileSync(file, 'latin1');
    context.after(() => fs.writeFileSync(file, binary, 'latin1'));
    fs.writeFileSync(file, binary.replace(/GLIBC_2\.34/g, 'GLIBC_2.99'), 'latin1');
    assert.match(
      run(place, load).output,
      /^pronghorn needs glibc 2\.99 or later, and this system has 2\.\d+: use a newer/,
    );
  });

  it('a damaged binary', () => {
    fs.writeFileSync(
      path.join(platformPackage, `pronghorn.${platformName()}.node`),
      'not what it was',
    );
    assert.match(
      run(place, load).output,
      /binary for \S+ cannot be loaded \(\/\S+\.node\): .*(too short|invalid ELF)/,
    );
  });
});

after(() => {
  // Read-only folders of npm's cache would keep the tests' folder from being removed.
  fs.rmSync(path.join(folder, 'cache'), { recursive: true, force: true });
});
