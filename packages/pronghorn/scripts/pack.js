'use strict';
// Creates the packages to publish: one for each platform whose binary is in lib/, with only that
// binary, and the package itself, which has them as optional dependencies. Publishes nothing: pass
// the files to `npm publish`.
// usage: node scripts/pack.js [FOLDER]     (default: target/npm)
// STRIP names a strip for the binaries' processors.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { TARGETS } = require('../lib/platform');

const home = path.join(__dirname, '..');
const root = path.join(home, '..', '..');
const folder = path.resolve(
  process.argv[2] ?? path.join(root, process.env.CARGO_TARGET_DIR ?? 'target', 'npm'),
);
const own = JSON.parse(fs.readFileSync(path.join(home, 'package.json'), 'utf8'));
const licenses = ['LICENSE-APACHE', 'LICENSE-MIT'];

function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

function run(command, args, cwd) {
  const { error, status } = spawnSync(command, args, {
    cwd,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (error) fail(`cannot run ${command}: ${error.message}`);
  if (status !== 0) fail(`${command} ${args.join(' ')} ended with ${status}`);
}

/** Packs a package from its description, the licenses, and the files that `fill` adds. */
function pack(name, description, fill) {
  const stage = path.join(folder, name);
  fs.mkdirSync(stage);
  fs.writeFileSync(path.join(stage, 'package.json'), `${JSON.stringify(description, null, 2)}\n`);
  for (const license of licenses)
    fs.copyFileSync(path.join(root, license), path.join(stage, license));
  fill(stage);
  run(
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
    stage,
  );
  console.log(path.join(folder, `${name}-${own.version}.tgz`));
}

const { version, license, repository, engines } = own;
const binaries = fs.readdirSync(path.join(home, 'lib')).flatMap((file) => {
  const platform = /^pronghorn\.(.+)\.node$/.exec(file)?.[1];
  return platform in TARGETS ? [{ file, platform, name: `pronghorn-${platform}` }] : [];
});
if (binaries.length === 0) fail('no binary in lib/: run make optimized first, or npm run build');

fs.rmSync(folder, { recursive: true, force: true });
fs.mkdirSync(folder, { recursive: true });
for (const { file, platform, name } of binaries) {
  const { os, cpu, libc } = TARGETS[platform];
  const description = `The binary of pronghorn for ${os} on ${cpu} with ${libc}`;
  const limits = { os: [os], cpu: [cpu], libc: [libc] };
  pack(
    name,
    {
      name,
      version,
      description,
      license,
      repository,
      engines,
      ...limits,
      main: file,
      files: [file, ...licenses],
    },
    (stage) => {
      fs.copyFileSync(path.join(home, 'lib', file), path.join(stage, file));
      run(process.env.STRIP ?? 'strip', ['--strip-unneeded', file], stage);
      fs.writeFileSync(
        path.join(stage, 'README.md'),
        `# ${name}\n\n${description}. Install pronghorn, which brings it along.\n`,
      );
    },
  );
}

const published = { ...own };
delete published.scripts;
delete published.devDependencies;
published.files = [...own.files, ...licenses];
published.optionalDependencies = Object.fromEntries(binaries.map(({ name }) => [name, version]));
pack(own.name, published, (stage) => {
  for (const entry of [...own.files, 'README.md']) {
    fs.cpSync(path.join(home, entry), path.join(stage, entry), {
      recursive: true,
      filter: (source) => !source.endsWith('.node'),
    });
  }
});
