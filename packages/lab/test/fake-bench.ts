import { spawn, spawnSync, type ChildProcessByStdio } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { packageFolder } from './places.js';

const CLI = fileURLToPath(new URL('../src/cli.js', import.meta.url));

/**
 * A plan of one profile, one page and three arms in one block and a rehearsal: six loads after one
 * preflight.
 */
export const PLAN = join(packageFolder, 'test/fixtures/plan.toml');
export const LOADS = 6;

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A running command with its output so far. */
export interface Started {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  /** Resolves when the standard error matches. */
  readonly says: (pattern: RegExp) => Promise<void>;
  readonly ended: Promise<Ended>;
}

/**
 * Programs that replace `pronghorn` and Chromium, so that campaigns run anywhere and instantly: a
 * load does what the script does instead of `pronghorn link`, and is never valid. `$n` is its
 * number, 0 for the preflight of a sitting.
 */
export class FakeBench {
  readonly folder = mkdtempSync(join(tmpdir(), 'lab-fake-bench-'));
  readonly #env: NodeJS.ProcessEnv;

  constructor(link: string, env: Readonly<Record<string, string>> = {}) {
    const counting =
      'case "$*" in *preflight.json*) n=0 ;; *) n=$(echo "$*" | sed "s,.*/load-\\([0-9]*\\)-.*,\\1,") ;; esac';
    const script = `[ "$1" = --version ] && { echo "pronghorn 0.1.0"; exit 0; }\n${counting}\n${link}`;
    this.#env = {
      ...process.env,
      TMPDIR: this.folder,
      PRONGHORN: this.program('pronghorn', script),
      CHROMIUM: this.program('chromium', 'echo "Chromium 156.0.8078.79"'),
      // Separate from this machine's campaigns: neither waits for the other.
      PRONGHORN_LAB_LOCK: join(this.folder, 'machine.lock'),
      PRONGHORN_LAB_SHARE_MACHINE: '',
      ...env,
    };
  }

  program(name: string, script: string): string {
    const path = join(this.folder, name);
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
    return path;
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Ended {
    return spawnSync(process.execPath, [CLI, ...args], {
      encoding: 'utf8',
      env: { ...this.#env, ...env },
    });
  }

  start(args: readonly string[], env: Readonly<Record<string, string>> = {}): Started {
    const child = spawn(process.execPath, [CLI, ...args], {
      env: { ...this.#env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [stdout, stderr] = ['', ''];
    const waiting: (() => void)[] = [];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
      for (const look of waiting) look();
    });
    const ended = new Promise<Ended>((resolve) => {
      child.once('close', (status) => {
        resolve({ status, stdout, stderr });
      });
    });
    const says = (pattern: RegExp): Promise<void> =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (pattern.test(stderr)) resolve();
        };
        waiting.push(look);
        look();
        void ended.then(() => {
          reject(new Error(`it ended, and said: ${stderr}`));
        });
      });
    return { child, says, ended };
  }

  /**
   * Runs a shell script with `disk` as a separate file system of so many bytes. `$lab` is the
   * command.
   */
  onDisk(
    disk: string,
    bytes: number,
    script: string,
    env: Readonly<Record<string, string>> = {},
  ): Ended {
    const mount = `mount -t tmpfs -o size=${bytes} tmpfs "$disk" || exit 99`;
    return spawnSync(
      'unshare',
      ['--user', '--map-root-user', '--mount', 'sh', '-c', `${mount}\n${script}`],
      {
        encoding: 'utf8',
        env: { ...this.#env, disk, plan: PLAN, lab: `${process.execPath} ${CLI}`, ...env },
      },
    );
  }
}

/** Returns the numbers of the loads in an output folder, from complete lines. */
export function loadsIn(out: string): number[] {
  const lines = readFileSync(join(out, 'samples.jsonl'), 'utf8').split('\n');
  return lines
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as { load: number }).load);
}

export function statusOf(out: string): string {
  return (JSON.parse(readFileSync(join(out, 'campaign.json'), 'utf8')) as { status: string })
    .status;
}
