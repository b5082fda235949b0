'use strict';

// Loads the addon of crates/node, or throws an error that says what to do. In a clone of the
// repository the addon is beside this file; from the registry it is a package per platform.

const fs = require('node:fs');
const path = require('node:path');
const { version } = require('../package.json');
const { glibcVersion, platformName, TARGETS } = require('./platform');

function load() {
  const platform = platformName();
  const file = find(`./pronghorn.${platform}.node`) ?? fromPackage(`pronghorn-${platform}`);
  if (file === undefined) throw new Error(nothingFor(platform));
  // Not by `require`, which would share one set of functions between two copies of this package,
  // such as one under an alias.
  const opened = { exports: {} };
  try {
    process.dlopen(opened, file);
  } catch (error) {
    throw new Error(notLoaded(platform, file, error), { cause: error });
  }
  // Their event loops are not libuv, although they export some of its functions.
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
      `pronghorn ${version} needs ${name} of the same version, and found ${found}: remove node_modules and package-lock.json, and run npm install`,
    );
  }
  return path.join(path.dirname(description), main);
}

function nothingFor(platform) {
  if (platform in TARGETS) {
    const name = `pronghorn-${platform}`;
    const missing = `pronghorn's binary for ${platform} is not installed: it is the package ${name} ${version}`;
    if (isFromTarball()) {
      return `${missing}; to install from tarballs, give npm both: npm install ./pronghorn-${version}.tgz ./${name}-${version}.tgz`;
    }
    return (
      `${missing}, an optional dependency; ` +
      'run npm install without --omit=optional, and remove package-lock.json and node_modules before if they come from another system; ' +
      `with tarballs, give npm that of ${name} as well; ` +
      'in a clone of the repository, run: npm run build --workspace packages/pronghorn'
    );
  }
  const fix = platform.startsWith('win32')
    ? ': run it in WSL 2, or in a container'
    : ': run it in a Linux container';
  return `pronghorn has no binary for ${platform}: it runs on Linux (${Object.keys(TARGETS).join(', ')})${process.platform === 'linux' ? '' : fix}`;
}

/** Returns whether npm installed this package from a file, according to its hidden lockfile. */
function isFromTarball() {
  const own = path.dirname(require.resolve('../package.json'));
  const folder = own.lastIndexOf(`${path.sep}node_modules${path.sep}`);
  if (folder < 0) return false;
  try {
    const modules = path.join(own.slice(0, folder), 'node_modules');
    const { packages } = JSON.parse(
      fs.readFileSync(path.join(modules, '.package-lock.json'), 'utf8'),
    );
    return packages[own.slice(folder + 1).replaceAll(path.sep, '/')].resolved.startsWith('file:');
  } catch {
    // Package managers other than npm have no such file.
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
