import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sample } from '../../src/samples/sample.js';
import { packageFolder } from '../places.js';

/**
 * Tests check what campaigns do, not how fast: they share the machine with each other. Their lock
 * is separate, so they also run beside a campaign that has the machine alone.
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

/** Ends commands that hang. Nothing here takes a tenth of it, even on a busy machine. */
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

/**
 * Returns the samples of an output folder. An incomplete last line, as in a killed campaign, is
 * ignored.
 */
export function samplesOf(out: string): Sample[] {
  const text = readFileSync(join(out, 'samples.jsonl'), 'utf8');
  const whole = text.slice(0, text.lastIndexOf('\n') + 1).split('\n');
  return whole.filter((line) => line !== '').map((line) => JSON.parse(line) as Sample);
}

/**
 * Returns the tables of the same loads as if the machine had not been busy: a busy one makes all
 * loads of a block invalid, which is correct, but not the subject of tests of outcomes and
 * messages.
 */
export function reportOfQuietMachine(out: string): Run {
  const copy = mkdtempSync(join(tmpdir(), 'lab-quiet-'));
  try {
    cpSync(out, copy, { recursive: true });
    const lines = samplesOf(out).map((sample) => {
      const { link, ...rest } = sample;
      const onTime = link && {
        ...link,
        kept_deadlines: true,
        lateness_us: { ...link.lateness_us, late: 0 },
      };
      return `${JSON.stringify({ ...rest, machine: undefined, ...(onTime && { link: onTime }) })}\n`;
    });
    writeFileSync(join(copy, 'samples.jsonl'), lines.join(''));
    return lab(['report', copy]);
  } finally {
    rmSync(copy, { recursive: true });
  }
}

/**
 * Returns the reasons against a load that do not depend on the machine, which may be too busy for a
 * link to keep its deadlines.
 */
export function faultsOf({ invalidReasons }: Pick<Sample, 'invalidReasons'>): string[] {
  return invalidReasons.filter(
    (reason) => !/^the (link missed its deadlines|machine was starved)/.test(reason),
  );
}
