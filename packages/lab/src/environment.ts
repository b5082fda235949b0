import { readFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';

/** What of the machine may decide a result. */
export interface Environment {
  readonly system: string;
  readonly cpu: string;
  readonly cpus: number;
  readonly memoryMebibytes: number;
  readonly node: string;
  readonly chromium: string;
  readonly pronghorn: string;
  readonly lab: string;
  /** The kernel's default for TCP, and what else it has. The arms set theirs; this is what they would get. */
  readonly tcpCongestionDefault: string;
  readonly tcpCongestionAvailable: string;
}

/** Describes this machine and the programs in use. */
export function environment(chromium: string, pronghorn: string): Environment {
  return {
    system: `${platform()} ${release()} ${arch()}`,
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cpus: cpus().length,
    memoryMebibytes: Math.round(totalmem() / 2 ** 20),
    node: process.versions.node,
    chromium,
    pronghorn,
    lab: ownVersion(),
    tcpCongestionDefault: kernelSetting('tcp_congestion_control'),
    tcpCongestionAvailable: kernelSetting('tcp_available_congestion_control'),
  };
}

/** The version in this package's own package.json. */
export function ownVersion(): string {
  for (const up of ['../package.json', '../../../package.json']) {
    try {
      const { name, version } = JSON.parse(readFileSync(new URL(up, import.meta.url), 'utf8')) as Record<
        string,
        string
      >;
      if (name === 'pronghorn-lab' && version !== undefined) return version;
    } catch {
      // Compiled for tests, this file lies two folders deeper.
    }
  }
  return 'unknown';
}

function kernelSetting(name: string): string {
  try {
    return readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim();
  } catch {
    return 'unknown';
  }
}
