import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sample } from '../../src/sample.js';
import { packageFolder } from '../places.js';

/**
 * Tests look at what campaigns do, not at how fast: they run beside each other, and beside a campaign of somebody else who has the machine for himself,
 * since their lock is one of their own.
 */
process.env.PRONGHORN_LAB_SHARE_MACHINE ??= '1';
if (process.env.PRONGHORN_LAB_LOCK === undefined) {
  const lock = join(tmpdir(), `pronghorn-lab-test-${process.pid}.lock`);
  process.env.PRONGHORN_LAB_LOCK = lock;
  process.once('exit', () => {
    rmSync(lock, { force: true });
  });
}

export const CLI = join(packageFolder, 'dist/cli.js');

/** Ends what hangs. Nothing here takes a tenth of it, on a machine that does much else too. */
export const LIMIT_MS = 900_000;

export interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `pronghorn-lab` to its end. */
export function lab(args: readonly string[], env: NodeJS.ProcessEnv = process.env): Run {
  return spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', env, timeout: LIMIT_MS });
}

/** The samples of an output folder. A last line that is not whole, as in a campaign that was killed, is none. */
export function samplesOf(out: string): Sample[] {
  const text = readFileSync(join(out, 'samples.jsonl'), 'utf8');
  const whole = text.slice(0, text.lastIndexOf('\n') + 1).split('\n');
  return whole.filter((line) => line !== '').map((line) => JSON.parse(line) as Sample);
}

/**
 * The tables of the same loads as they would be if the machine had had all its time for them: a busy one makes all loads of a block invalid, which is
 * right, and not what a test of outcomes and words is about.
 */
export function reportOfQuietMachine(out: string): Run {
  const copy = mkdtempSync(join(tmpdir(), 'lab-quiet-'));
  try {
    cpSync(out, copy, { recursive: true });
    const lines = samplesOf(out).map((sample) => {
      const { link, ...rest } = sample;
      const onTime = link && { ...link, kept_deadlines: true, lateness_us: { ...link.lateness_us, late: 0 } };
      return `${JSON.stringify({ ...rest, machine: undefined, ...(onTime && { link: onTime }) })}\n`;
    });
    writeFileSync(join(copy, 'samples.jsonl'), lines.join(''));
    return lab(['report', copy]);
  } finally {
    rmSync(copy, { recursive: true });
  }
}

/** The reasons against a load that are not up to the machine, which may be too busy for a link to keep its deadlines. */
export function faultsOf({ invalidReasons }: Pick<Sample, 'invalidReasons'>): string[] {
  return invalidReasons.filter((reason) => !/^the (link missed its deadlines|machine was starved)/.test(reason));
}
