import { readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { writeAtOnce } from './campaign-file.js';
import { ExitCode, LabError } from './errors.js';

const RUNNING = 'running.json';
const SCRATCH_PREFIX = 'pronghorn-lab-';
const END_WAIT_MS = 15_000;

/** What a link's end kills is not gone at once, and may still write. */
const GONE = { recursive: true, force: true, maxRetries: 20, retryDelay: 50 } as const;

const note = z.object({ lab: z.number(), link: z.number().optional(), scratch: z.string() });

/** Notes in a campaign's folder what is running for it, for whoever comes when this process was killed. */
export function noteRunning(out: string, { scratch, link }: { scratch: string; link: number | undefined }): void {
  const value = { lab: process.pid, ...(link !== undefined && { link }), scratch };
  writeAtOnce(join(out, RUNNING), `${JSON.stringify(value)}\n`);
}

export function clearRunning(out: string): void {
  rmSync(join(out, RUNNING), { force: true });
}

/**
 * Ends and removes what a killed campaign left: a load that would disturb the ones to come, and its scratch folder.
 * Refuses while the campaign's own process is alive.
 */
export async function endLeftovers(out: string): Promise<void> {
  const left = readNote(out);
  if (left === undefined) return;
  if (isAlive(left.lab, 'node')) {
    const hint = 'wait for its end, or end it';
    throw new LabError(ExitCode.CannotCreate, `the campaign in ${out} is running, as process ${left.lab}`, hint);
  }
  // A process number is given again; only the command line tells that this is the load's link.
  if (left.link !== undefined && isAlive(left.link, left.scratch)) await end(left.link);
  if (basename(left.scratch).startsWith(SCRATCH_PREFIX)) rmSync(left.scratch, GONE);
  clearRunning(out);
}

async function end(pid: number): Promise<void> {
  process.kill(pid, 'SIGTERM');
  const until = performance.now() + END_WAIT_MS;
  while (isAlive(pid, '') && performance.now() < until) await sleep(50);
  if (isAlive(pid, '')) process.kill(pid, 'SIGKILL');
}

function readNote(out: string): z.infer<typeof note> | undefined {
  try {
    return note.parse(JSON.parse(readFileSync(join(out, RUNNING), 'utf8')));
  } catch {
    return undefined;
  }
}

/** Whether a process is there and its command line contains `part`. */
function isAlive(pid: number, part: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(part);
  } catch {
    return false;
  }
}
