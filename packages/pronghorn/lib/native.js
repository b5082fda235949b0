'use strict';

// The addon of crates/node, with words that help where it cannot be loaded. In a clone of the repository it lies beside this file; from the
// registry it comes as the package of its platform, of which npm installs the one that fits.

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
    return (
      `pronghorn's binary for ${platform} is not installed: it is the package pronghorn-${platform}, an optional dependency. ` +
      'Run npm install without --omit=optional; if package-lock.json or node_modules come from another system, remove both before. ' +
      'In a clone of the repository, run: npm run build --workspace packages/pronghorn'
    );
  }
  const fix = platform.startsWith('win32') ? ': run it in WSL 2, or in a container' : ': run it in a Linux container';
  return `pronghorn has no binary for ${platform}: it runs on Linux (${Object.keys(TARGETS).join(', ')})${process.platform === 'linux' ? '' : fix}`;
}

function notLoaded(platform, file, error) {
  const wanted = /version `GLIBC_([\d.]+)' not found/.exec(error.message);
  if (wanted !== null) {
    return `pronghorn needs glibc ${wanted[1]} or later, and this system has ${glibcVersion()}: use a newer distribution or container image, or build pronghorn on this one`;
  }
  return `pronghorn's binary for ${platform} cannot be loaded (${file}): ${error.message}`;
}

module.exports = load();
