import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
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

/** The reasons against a load that are not up to the machine, which may be too busy for a link to keep its deadlines. */
export function faultsOf({ invalidReasons }: Pick<Sample, 'invalidReasons'>): string[] {
  return invalidReasons.filter((reason) => !/^the (link missed its deadlines|machine was starved)/.test(reason));
}
