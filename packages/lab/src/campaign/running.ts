import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { writeAtOnce } from './campaign-file.js';
import { commandLine, parentOf } from '../run/processes.js';
import { removeFolder } from '../io/scratch.js';

const RUNNING = 'running.json';
const SCRATCH_PREFIX = 'pronghorn-lab-';
const TERM_WAIT_MS = 15_000;
const KILL_WAIT_MS = 5_000;

const note = z.object({ lab: z.number(), scratch: z.string() });

/**
 * Records the process and its scratch folder in the campaign's folder, for cleaning up if it is
 * killed.
 */
export function recordRunning(out: string, scratch: string): void {
  writeAtOnce(join(out, RUNNING), `${JSON.stringify({ lab: process.pid, scratch })}\n`);
}

/** Marks loads and report as finished. */
export function clearRunning(out: string): void {
  rmSync(join(out, RUNNING), { force: true });
}

/** Returns whether a sitting of the campaign did not finish its report. */
export function isUnfinished(out: string): boolean {
  return existsSync(join(out, RUNNING));
}

/**
 * Ends and removes what a killed campaign left: a running load, which would disturb the next ones,
 * and its scratch folder. The folder must be locked, which proves that the campaign's process is
 * gone.
 */
export async function endLeftovers(out: string): Promise<void> {
  const left = readNote(out);
  if (left === undefined) return;
  if (basename(left.scratch).startsWith(SCRATCH_PREFIX)) {
    await endAll(left.scratch);
    await removeFolder(left.scratch);
  }
}

/**
 * Ends the processes with `folder` in their command line: the topmost one, usually the link, ends
 * the others in order. A process number recorded before the kill would miss a load that had just
 * begun.
 */
async function endAll(folder: string): Promise<void> {
  const naming = processesNaming(folder);
  for (const pid of naming) if (!naming.includes(parentOf(pid))) signal(pid, 'SIGTERM');
  if (await areGone(folder, TERM_WAIT_MS)) return;
  for (const pid of processesNaming(folder)) signal(pid, 'SIGKILL');
  await areGone(folder, KILL_WAIT_MS);
}

async function areGone(folder: string, waitMs: number): Promise<boolean> {
  const until = performance.now() + waitMs;
  while (processesNaming(folder).length > 0) {
    if (performance.now() >= until) return false;
    await sleep(50);
  }
  return true;
}

function processesNaming(folder: string): number[] {
  const pids = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  return pids.map(Number).filter((pid) => pid !== process.pid && commandLine(pid).includes(folder));
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has ended meanwhile.
  }
}

function readNote(out: string): z.infer<typeof note> | undefined {
  try {
    return note.parse(JSON.parse(readFileSync(join(out, RUNNING), 'utf8')));
  } catch {
    return undefined;
  }
}
