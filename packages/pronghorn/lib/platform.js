'use strict';

/** The name of the platform that a binary is for: operating system, processor, C library. */
function platformName() {
  const { platform, arch } = process;
  if (platform !== 'linux') return `${platform}-${arch}`;
  const isGlibc = Boolean(process.report?.getReport().header.glibcVersionRuntime);
  return `${platform}-${arch}-${isGlibc ? 'gnu' : 'musl'}`;
}

module.exports = { platformName };
