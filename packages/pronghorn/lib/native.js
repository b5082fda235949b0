'use strict';

// The addon of crates/node, with words that help where it cannot be loaded.

const { platformName } = require('./platform');

function load() {
  if (process.versions.bun) {
    throw new Error("pronghorn runs inside Node.js's event loop, which Bun does not have: run this program with node");
  }
  const platform = platformName();
  try {
    return require(`./pronghorn.${platform}.node`);
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw error;
    throw new Error(
      `pronghorn has no binary for ${platform}: it is built for Linux on x64 with glibc. In a clone of its repository, run: npm run build`,
      { cause: error },
    );
  }
}

module.exports = load();
