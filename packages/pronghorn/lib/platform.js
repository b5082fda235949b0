'use strict';

/** Platforms with binaries, by the suffix of their npm packages. */
const TARGETS = {
  'linux-x64-gnu': { rust: 'x86_64-unknown-linux-gnu', os: 'linux', cpu: 'x64', libc: 'glibc' },
  'linux-x64-musl': { rust: 'x86_64-unknown-linux-musl', os: 'linux', cpu: 'x64', libc: 'musl' },
  'linux-arm64-gnu': {
    rust: 'aarch64-unknown-linux-gnu',
    os: 'linux',
    cpu: 'arm64',
    libc: 'glibc',
  },
  'linux-arm64-musl': {
    rust: 'aarch64-unknown-linux-musl',
    os: 'linux',
    cpu: 'arm64',
    libc: 'musl',
  },
};

/** Returns the version of glibc, such as '2.36'; `undefined` on musl and other systems. */
function glibcVersion() {
  const { report } = process;
  if (report?.getReport === undefined) return undefined;
  // The report would resolve the names of all peers, which takes long.
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  try {
    return report.getReport().header.glibcVersionRuntime;
  } finally {
    report.excludeNetwork = excludeNetwork;
  }
}

/** Returns the name of this platform: operating system, processor, C library. */
function platformName() {
  const { platform, arch } = process;
  if (platform !== 'linux') return `${platform}-${arch}`;
  return `${platform}-${arch}-${glibcVersion() === undefined ? 'musl' : 'gnu'}`;
}

module.exports = { platformName, glibcVersion, TARGETS };
