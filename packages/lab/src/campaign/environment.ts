import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Environment } from './campaign-file.js';
import { hashOfFiles } from '../io/hash.js';
import type { Pronghorn } from '../run/programs.js';

/** Describes the properties of this machine and its programs that can affect a result. */
export function environment(chromium: string, pronghorn: Pronghorn, sandbox?: string): Environment {
  return {
    system: `${platform()} ${release()} ${arch()}`,
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cpus: cpus().length,
    memoryMebibytes: Math.round(totalmem() / 2 ** 20),
    node: process.versions.node,
    chromium,
    ...(sandbox !== undefined && { sandbox }),
    pronghorn: pronghorn.version,
    pronghornSha256: createHash('sha256').update(readFileSync(pronghorn.path)).digest('hex'),
    lab: ownVersion(),
    labSha256: ownHash(),
    tcpCongestionDefault: kernelSetting('tcp_congestion_control'),
    tcpCongestionAvailable: kernelSetting('tcp_available_congestion_control'),
    udpBufferMax: `${kernelSetting('rmem_max', 'core')} received, ${kernelSetting('wmem_max', 'core')} sent`,
  };
}

/** Returns the version in this package's own package.json. */
export function ownVersion(): string {
  for (const up of ['../../package.json', '../../../../package.json']) {
    try {
      const { name, version } = JSON.parse(
        readFileSync(new URL(up, import.meta.url), 'utf8'),
      ) as Record<string, string>;
      if (name === 'pronghorn-lab' && version !== undefined) return version;
    } catch {
      // Compiled for tests, this file is two folders deeper.
    }
  }
  return 'unknown';
}

/**
 * Returns a hash of this package's program files without its tests. It tells apart builds of one
 * version.
 */
export function ownHash(folder = fileURLToPath(new URL('..', import.meta.url))): string {
  return hashOfFiles(folder, (path) => path.endsWith('.js') && !path.startsWith('test/'));
}

function kernelSetting(name: string, family = 'ipv4'): string {
  try {
    return readFileSync(`/proc/sys/net/${family}/${name}`, 'utf8').trim();
  } catch {
    return 'unknown';
  }
}
