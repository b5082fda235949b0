/**
 * Locks that the operating system ends with the process that holds them, however that ends.
 *
 * Node.js has no flock(2). The program `flock` takes it on a descriptor that it inherits: the lock belongs to the open file,
 * which is this process's too, and stays when the program ends. The commands that measure inherit that of the machine
 * (`start`), other children none.
 */
import { spawn, spawnSync, type StdioOptions } from 'node:child_process';
import { closeSync, constants, fchmodSync, fstatSync, openSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isDiskError } from './disk.js';
import { ExitCode, LabError, messageOf, systemCode } from './errors.js';
import { commandLine, parentOf, readOr } from './processes.js';
import { SAMPLES } from './samples-file.js';

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

/** Makes the samples of a new campaign and locks them, which locks the folder. */
export function createSamples(out: string): number {
  try {
    return lockFolder(out, openSync(join(out, SAMPLES), 'ax'));
  } catch (thrown) {
    // Another campaign began in the folder since it was seen to be free.
    if (systemCode(thrown) !== 'EEXIST') throw thrown;
    throw new LabError(ExitCode.CannotCreate, `the folder ${out} is not empty`, 'name another --out');
  }
}

/** Locks the folder of a campaign that is to go on. */
export function lockSamples(out: string): number {
  const path = join(out, SAMPLES);
  try {
    // Locks on network file systems need the right to write.
    return lockFolder(out, openFile(path, constants.O_WRONLY | constants.O_APPEND));
  } catch (thrown) {
    if (thrown instanceof LabError || isDiskError(thrown)) throw thrown;
    if (systemCode(thrown) !== 'ENOENT')
      throw new LabError(ExitCode.CannotCreate, `cannot write ${path}: ${messageOf(thrown)}`);
    throw new LabError(ExitCode.InputMissing, `${out} has no ${SAMPLES}`, 'name the output folder of a campaign');
  }
}

function lockFolder(out: string, descriptor: number): number {
  if (tryLock(descriptor, 'exclusive')) return descriptor;
  const holders = holdersOf(descriptor);
  closeSync(descriptor);
  const who = holders.length === 0 ? '' : `, as ${processesInWords(holders)}`;
  throw new LabError(ExitCode.Busy, `the campaign in ${out} is running${who}`, 'wait for its end, or end it');
}

/** How a campaign has the machine. */
export interface MachineUse {
  /** Together with others that share it too, instead of alone. */
  readonly share: boolean;
  /** Wait until those that are in the way have ended, instead of failing. */
  readonly wait: boolean;
}

export const ALONE: MachineUse = { share: false, wait: false };

/** Names another lock file than that of the machine, for campaigns that have processors of their own. */
export const LOCK_VARIABLE = 'PRONGHORN_LAB_LOCK';
/** Not in `TMPDIR`, which may be another folder for each user. */
const MACHINE_LOCK = '/tmp/pronghorn-lab.lock';

/**
 * Waits for the machine, or fails if it is in use: campaigns beside each other make each other's loads slower, unevenly.
 * Any number of campaigns may have it together if each of them was told to share it.
 */
export async function lockMachine({ share, wait }: MachineUse, signal: AbortSignal): Promise<number> {
  const path = machineLock();
  const mode = share ? 'shared' : 'exclusive';
  for (;;) {
    const descriptor = openMachineLock(path);
    if (!tryLock(descriptor, mode)) {
      const who = holdersInWords(holdersOf(descriptor));
      if (!wait) {
        closeSync(descriptor);
        throw new LabError(ExitCode.Busy, `${who}, and two at once disturb each other's times`, WAYS_OUT);
      }
      process.stderr.write(`waiting: ${who}\n`);
      if (!(await waitForLock(descriptor, mode, signal))) {
        closeSync(descriptor);
        throw new LabError(ExitCode.Interrupted, 'interrupted before the first load');
      }
    }
    // Whoever removed the file meanwhile has left a lock that no other process will find.
    if (isAt(descriptor, path)) return descriptor;
    closeSync(descriptor);
  }
}

const WAYS_OUT = 'give --wait to begin when it is done, or --share-machine to each of them: their reports then say so';

/** How many other processes measure on this machine beside the one that shares it, as far as this user may see. */
export function othersMeasuring(shared: number | undefined): number {
  return shared === undefined ? 0 : holdersOf(shared).length;
}

function machineLock(): string {
  const given = process.env[LOCK_VARIABLE];
  return given === undefined || given === '' ? MACHINE_LOCK : given;
}

/**
 * Every user may lock the file, so that nobody needs to write it. In a folder for all users a file of another one must not
 * be opened with O_CREAT, and no link followed.
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

/** Without waiting for the other end of what turns out to be a named pipe. */
function openFile(path: string, flags: number): number {
  const descriptor = openSync(path, flags | constants.O_NONBLOCK);
  if (fstatSync(descriptor).isFile()) return descriptor;
  closeSync(descriptor);
  throw new Error('it is no regular file');
}

function cannotLock(path: string, why: string): LabError {
  const hint = `remove it if it is no file of the lab's, or name another one in ${LOCK_VARIABLE}`;
  return new LabError(ExitCode.CannotCreate, `cannot lock ${path}: ${why}`, hint);
}

function isAt(descriptor: number, path: string): boolean {
  const [held, there] = [fstatSync(descriptor), statSync(path, { throwIfNoEntry: false })];
  return there?.dev === held.dev && there.ino === held.ino;
}

type Mode = 'exclusive' | 'shared';
const FLAGS: Readonly<Record<Mode, string>> = { exclusive: '-x', shared: '-s' };
/** The number that a descriptor has in the program `flock`. */
const INHERITED = 3;
/** What `flock -n` exits with where another process holds the lock. */
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

/** False if it was aborted. */
async function waitForLock(descriptor: number, mode: Mode, signal: AbortSignal): Promise<boolean> {
  const stdio: StdioOptions = ['ignore', 'ignore', 'inherit', descriptor];
  // A group of its own: Ctrl-C at the terminal is for the lab alone.
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
    return new LabError(ExitCode.Unavailable, 'the program flock was not found', 'install the package util-linux');
  }
  return new LabError(ExitCode.Unavailable, `flock failed: ${error?.message ?? said.trim()}`);
}

/**
 * Processes that hold a lock on the file, apart from this one; of other users' only root sees them. What a holder has started
 * has inherited the lock, and counts only where the holder is gone.
 */
function holdersOf(descriptor: number): number[] {
  const file = fstatSync(descriptor);
  const all = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  const holders = all.filter((pid) => openFiles(pid).some((each) => isLockOf(pid, each, file))).map(Number);
  return holders.filter((pid) => pid !== process.pid && !holders.includes(parentOf(pid)));
}

function openFiles(pid: string): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`);
  } catch {
    return [];
  }
}

/** Whether a process's open file is this one, with a lock of its own: those that wait have it open too. */
function isLockOf(pid: string, descriptor: string, { dev, ino }: { dev: number; ino: number }): boolean {
  try {
    const open = statSync(`/proc/${pid}/fd/${descriptor}`);
    if (open.dev !== dev || open.ino !== ino) return false;
  } catch {
    return false;
  }
  return /^lock:.*\bFLOCK\b/m.test(readOr(`/proc/${pid}/fdinfo/${descriptor}`, ''));
}

function holdersInWords(holders: readonly number[]): string {
  const [first] = holders;
  if (first === undefined) return 'another process measures on this machine';
  const words = commandInWords(first);
  const command = words === '' || holders.length > 1 ? '' : ` (${words})`;
  return `${processesInWords(holders)}${command} ${holders.length > 1 ? 'measure' : 'measures'} on this machine`;
}

function processesInWords(pids: readonly number[]): string {
  return pids.length === 1 ? `process ${pids.join()}` : `the processes ${pids.join(', ')}`;
}

/** What the lab was told to do: "run plan.toml --out DIR". */
function commandInWords(pid: number): string {
  const words = commandLine(pid)
    .split('\0')
    .filter((word) => word !== '');
  const program = words.findIndex((word) => /(?:^|\/)(?:cli\.js|pronghorn-lab)$/.test(word));
  return program < 0 ? '' : words.slice(program + 1).join(' ');
}
