/**
 * Locks that the operating system releases when the holding process ends, however it ends.
 *
 * Node.js has no flock(2), so the program `flock` takes the lock on an inherited descriptor. The
 * lock belongs to the open file, which this process shares, and stays when the program ends. The
 * measuring commands inherit the machine's lock (`start`); other children inherit none.
 */
import { spawn, spawnSync, type StdioOptions } from 'node:child_process';
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  openSync,
  readdirSync,
  statSync,
} from 'node:fs';
import { join } from 'node:path';
import { isDiskError } from '../io/disk.js';
import { ExitCode, LabError, messageOf, systemCode } from '../io/errors.js';
import { commandLine, parentOf, readOr } from '../run/processes.js';
import { SAMPLES } from '../samples/samples-file.js';

/** Locks of a campaign, released together. */
export class Locks {
  readonly #descriptors: number[] = [];

  add(descriptor: number): void {
    this.#descriptors.push(descriptor);
  }

  release(): void {
    for (const descriptor of this.#descriptors.splice(0)) closeSync(descriptor);
  }
}

/** Creates and locks the samples file of a new campaign, which locks the folder. */
export function createSamples(out: string): number {
  try {
    return lockFolder(out, openSync(join(out, SAMPLES), 'ax'));
  } catch (thrown) {
    // Another campaign started in the folder after it was found to be free.
    if (systemCode(thrown) !== 'EEXIST') throw thrown;
    throw new LabError(
      ExitCode.CannotCreate,
      `the folder ${out} is not empty`,
      'name another --out',
    );
  }
}

/** Locks the folder of a campaign that is to be resumed. */
export function lockSamples(out: string): number {
  const path = join(out, SAMPLES);
  try {
    // Locks on network file systems need write access.
    return lockFolder(out, openFile(path, constants.O_WRONLY | constants.O_APPEND));
  } catch (thrown) {
    if (thrown instanceof LabError || isDiskError(thrown)) throw thrown;
    if (systemCode(thrown) !== 'ENOENT')
      throw new LabError(ExitCode.CannotCreate, `cannot write ${path}: ${messageOf(thrown)}`);
    throw new LabError(
      ExitCode.InputMissing,
      `${out} has no ${SAMPLES}`,
      'name the output folder of a campaign',
    );
  }
}

function lockFolder(out: string, descriptor: number): number {
  if (tryLock(descriptor, 'exclusive')) return descriptor;
  const holders = holdersOf(descriptor);
  closeSync(descriptor);
  const who = holders.length === 0 ? '' : ` as ${describeProcesses(holders)}`;
  throw new LabError(
    ExitCode.Busy,
    `the campaign in ${out} is running${who}`,
    'wait until it ends, or stop it',
  );
}

/** How a campaign uses the machine. */
export interface MachineUse {
  /** Measure beside other campaigns that share the machine, instead of alone. */
  readonly share: boolean;
  /** Wait until conflicting campaigns have ended, instead of failing. */
  readonly wait: boolean;
}

export const ALONE: MachineUse = { share: false, wait: false };

/**
 * Environment variable that names another lock file, for campaigns that have processors of their
 * own.
 */
export const LOCK_VARIABLE = 'PRONGHORN_LAB_LOCK';
/** Not in `TMPDIR`, which may differ between users. */
const MACHINE_LOCK = '/tmp/pronghorn-lab.lock';

/**
 * Locks the machine, or fails if it is in use: campaigns that run at the same time slow each
 * other's loads unevenly. Any number of campaigns may share the machine if all of them were told
 * to.
 */
export async function lockMachine(
  { share, wait }: MachineUse,
  signal: AbortSignal,
): Promise<number> {
  const path = machineLock();
  const mode = share ? 'shared' : 'exclusive';
  for (;;) {
    const descriptor = openMachineLock(path);
    if (!tryLock(descriptor, mode)) {
      const who = describeHolders(holdersOf(descriptor));
      if (!wait) {
        closeSync(descriptor);
        throw new LabError(
          ExitCode.Busy,
          `${who}; simultaneous campaigns distort each other's times`,
          WAYS_OUT,
        );
      }
      process.stderr.write(`waiting: ${who}\n`);
      if (!(await waitForLock(descriptor, mode, signal))) {
        closeSync(descriptor);
        throw new LabError(ExitCode.Interrupted, 'interrupted before the first load');
      }
    }
    // Another process removed the file meanwhile, so no other process will find this lock.
    if (isAt(descriptor, path)) return descriptor;
    closeSync(descriptor);
  }
}

const WAYS_OUT =
  'use --wait to start when it has ended, or --share-machine with every campaign, which their reports then state';

/** Returns how many other processes measure on the shared machine, as far as this user may see. */
export function othersMeasuring(shared: number | undefined): number {
  return shared === undefined ? 0 : holdersOf(shared).length;
}

function machineLock(): string {
  const given = process.env[LOCK_VARIABLE];
  return given === undefined || given === '' ? MACHINE_LOCK : given;
}

/**
 * Opens the machine's lock file read-only, so that every user can lock it. In a world-writable
 * folder another user's file must not be opened with O_CREAT, and no link may be followed.
 */
function openMachineLock(path: string): number {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW;
  for (;;) {
    try {
      return openFile(path, flags);
    } catch (thrown) {
      if (systemCode(thrown) !== 'ENOENT') throw cannotLock(path, messageOf(thrown));
    }
    try {
      const descriptor = openSync(path, flags | constants.O_CREAT | constants.O_EXCL, 0o644);
      fchmodSync(descriptor, 0o644);
      return descriptor;
    } catch (thrown) {
      if (systemCode(thrown) !== 'EEXIST') throw cannotLock(path, messageOf(thrown));
    }
  }
}

/** Opens a regular file; does not block if the path is a named pipe. */
function openFile(path: string, flags: number): number {
  const descriptor = openSync(path, flags | constants.O_NONBLOCK);
  if (fstatSync(descriptor).isFile()) return descriptor;
  closeSync(descriptor);
  throw new Error('not a regular file');
}

function cannotLock(path: string, why: string): LabError {
  const hint = `remove it if it does not belong to the lab, or set ${LOCK_VARIABLE} to another file`;
  return new LabError(ExitCode.CannotCreate, `cannot lock ${path}: ${why}`, hint);
}

function isAt(descriptor: number, path: string): boolean {
  const [held, there] = [fstatSync(descriptor), statSync(path, { throwIfNoEntry: false })];
  return there?.dev === held.dev && there.ino === held.ino;
}

type Mode = 'exclusive' | 'shared';
const FLAGS: Readonly<Record<Mode, string>> = { exclusive: '-x', shared: '-s' };
/** Number of the inherited descriptor in the program `flock`. */
const INHERITED = 3;
/** Exit code of `flock -n` if another process holds the lock. */
const HELD = 1;

function tryLock(descriptor: number, mode: Mode): boolean {
  const stdio: StdioOptions = ['ignore', 'ignore', 'pipe', descriptor];
  const { status, error, stderr } = spawnSync('flock', [FLAGS[mode], '-n', String(INHERITED)], {
    stdio,
    encoding: 'utf8',
  });
  if (status === 0 || status === HELD) return status === 0;
  throw withoutFlock(error, stderr);
}

/** Waits for the lock; returns false if aborted. */
async function waitForLock(descriptor: number, mode: Mode, signal: AbortSignal): Promise<boolean> {
  const stdio: StdioOptions = ['ignore', 'ignore', 'inherit', descriptor];
  // Runs in its own process group: Ctrl-C at the terminal is for the lab alone.
  const child = spawn('flock', [FLAGS[mode], String(INHERITED)], { stdio, detached: true });
  const onAbort = (): void => void child.kill();
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  try {
    const status = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', resolve);
    });
    if (status === 0) return true;
    if (signal.aborted) return false;
    throw withoutFlock(undefined, `exit code ${status}`);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function withoutFlock(error: Error | undefined, said: string): LabError {
  if (systemCode(error) === 'ENOENT') {
    return new LabError(
      ExitCode.Unavailable,
      'cannot find the program flock',
      'install the package util-linux',
    );
  }
  return new LabError(ExitCode.Unavailable, `flock failed: ${error?.message ?? said.trim()}`);
}

/**
 * Returns the other processes that hold a lock on the file; only root sees those of other users.
 * Children inherit a holder's lock, and count only if the holder has ended.
 */
function holdersOf(descriptor: number): number[] {
  const file = fstatSync(descriptor);
  const all = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  const holders = all
    .filter((pid) => openFiles(pid).some((each) => isLockOf(pid, each, file)))
    .map(Number);
  return holders.filter((pid) => pid !== process.pid && !holders.includes(parentOf(pid)));
}

function openFiles(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`);
  } catch {
    return [];
  }
}

/**
 * Returns whether a process's open file is this one and locked by it: waiting processes have it
 * open too.
 */
function isLockOf(
  pid: string,
  descriptor: string,
  { dev, ino }: { dev: number; ino: number },
): boolean {
  try {
    const open = statSync(`/proc/${pid}/fd/${descriptor}`);
    if (open.dev !== dev || open.ino !== ino) return false;
  } catch {
    return false;
  }
  return /^lock:.*\bFLOCK\b/m.test(readOr(`/proc/${pid}/fdinfo/${descriptor}`, ''));
}

function describeHolders(holders: readonly number[]): string {
  const [first] = holders;
  if (first === undefined) return 'another process is measuring on this machine';
  const words = describeCommand(first);
  const command = words === '' || holders.length > 1 ? '' : ` (${words})`;
  return `${describeProcesses(holders)}${command} ${holders.length > 1 ? 'are measuring' : 'is measuring'} on this machine`;
}

function describeProcesses(pids: readonly number[]): string {
  return pids.length === 1 ? `process ${pids.join()}` : `processes ${pids.join(', ')}`;
}

/** Returns the lab's command line: "run plan.toml --out DIR". */
function describeCommand(pid: number): string {
  const words = commandLine(pid)
    .split('\0')
    .filter((word) => word !== '');
  const program = words.findIndex((word) => /(?:^|\/)(?:cli\.js|pronghorn-lab)$/.test(word));
  return program < 0 ? '' : words.slice(program + 1).join(' ');
}
