'use strict';

// The addon of crates/node, with words that help where it cannot be loaded. In a clone of the repository it lies beside this file; from the
// registry it comes as the package of its platform, of which npm installs the one that fits.

const fs = require('node:fs');
const path = require('node:path');
const { version } = require('../package.json');
const { glibcVersion, platformName, TARGETS } = require('./platform');

function load() {
  const platform = platformName();
  const file = find(`./pronghorn.${platform}.node`) ?? fromPackage(`pronghorn-${platform}`);
  if (file === undefined) throw new Error(nothingFor(platform));
  // Not by `require`, which would give two copies of this package, such as under an alias, one set of functions.
  const opened = { exports: {} };
  try {
    process.dlopen(opened, file);
  } catch (error) {
    throw new Error(notLoaded(platform, file, error), { cause: error });
  }
  // Their event loops are not libuv, whatever of its functions they have for others.
  if (process.versions.bun || process.versions.deno) opened.exports.pollByThread(true);
  return opened.exports;
}

function find(name) {
  try {
    return require.resolve(name);
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

function fromPackage(name) {
  const description = find(`${name}/package.json`);
  if (description === undefined) return undefined;
  const { main, version: found } = require(description);
  if (found !== version) {
    throw new Error(
      `pronghorn ${version} has found ${name} ${found}, and needs the same version: remove node_modules and package-lock.json, and run npm install`,
    );
  }
  return path.join(path.dirname(description), main);
}

function nothingFor(platform) {
  if (platform in TARGETS) {
    const name = `pronghorn-${platform}`;
    const missing = `pronghorn's binary for ${platform} is not installed: it is a package of its own, ${name} ${version}`;
    if (isFromTarball()) {
      return `${missing}. Where pronghorn itself comes from a tarball, give npm both: npm install ./pronghorn-${version}.tgz ./${name}-${version}.tgz`;
    }
    return (
      `${missing}, an optional dependency. ` +
      'Run npm install without --omit=optional; if package-lock.json or node_modules come from another system, remove both before. ' +
      `With tarballs, give npm that of ${name} as well. ` +
      'In a clone of the repository, run: npm run build --workspace packages/pronghorn'
    );
  }
  const fix = platform.startsWith('win32') ? ': run it in WSL 2, or in a container' : ': run it in a Linux container';
  return `pronghorn has no binary for ${platform}: it runs on Linux (${Object.keys(TARGETS).join(', ')})${process.platform === 'linux' ? '' : fix}`;
}

/** Whether npm has installed this package from a file, as it notes beside what it installs. */
function isFromTarball() {
  const own = path.dirname(require.resolve('../package.json'));
  const folder = own.lastIndexOf(`${path.sep}node_modules${path.sep}`);
  if (folder < 0) return false;
  try {
    const modules = path.join(own.slice(0, folder), 'node_modules');
    const { packages } = JSON.parse(fs.readFileSync(path.join(modules, '.package-lock.json'), 'utf8'));
    return packages[own.slice(folder + 1).replaceAll(path.sep, '/')].resolved.startsWith('file:');
  } catch {
    // Other programs than npm keep no such notes.
    return false;
  }
}

function notLoaded(platform, file, error) {
  const wanted = /version `GLIBC_([\d.]+)' not found/.exec(error.message);
  if (wanted !== null) {
    return `pronghorn needs glibc ${wanted[1]} or later, and this system has ${glibcVersion()}: use a newer distribution or container image, or build pronghorn on this one`;
  }
  return `pronghorn's binary for ${platform} cannot be loaded (${file}): ${error.message}`;
}

module.exports = load();
