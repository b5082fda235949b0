/** Disks that take nothing more: no fault of this program, and nothing that makes what was measured wrong. */
import { existsSync, mkdirSync, statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { ExitCode, LabError, systemCode } from './errors.js';
import { lastWord } from './link-command.js';

/** What is wrong by the code of a system error, and what to do about it. */
const PROBLEMS: Readonly<Record<string, readonly [problem: string, remedy: string]>> = {
  ENOSPC: ['no space left on the disk', 'make room there'],
  EDQUOT: ['the disk quota is used up', 'make room there'],
  EROFS: ['the file system is read-only', 'make it writable'],
  EIO: ['the disk reports an input/output error', 'look after the disk'],
};

/** The same in the words of the C library, for what another program said of a disk. */
const SAID: readonly (readonly [RegExp, string])[] = [
  [/\bENOSPC\b|No space left on device/, 'ENOSPC'],
  [/\bEDQUOT\b|Disk quota exceeded/, 'EDQUOT'],
  [/\bEROFS\b|Read-only file system/, 'EROFS'],
  [/\bEIO\b|Input\/output error/, 'EIO'],
];

/** A disk's error where the system has none of its own to throw. */
export class DiskError extends Error {
  override readonly name = 'DiskError';

  constructor(
    readonly code: string,
    readonly path: string,
    cause?: unknown,
  ) {
    super(`${path}: ${PROBLEMS[code]?.[0] ?? code}`, { cause });
  }
}

/** Runs what writes to `path`, whose name the system leaves out of the error of a write. */
export function writingTo<T>(path: string, write: () => T): T {
  try {
    return write();
  } catch (thrown) {
    if (!isDiskError(thrown) || thrown instanceof DiskError) throw thrown;
    throw new DiskError(systemCode(thrown) ?? '', path, thrown);
  }
}

export function isDiskError(thrown: unknown): boolean {
  return (systemCode(thrown) ?? '') in PROBLEMS;
}

/** Makes a folder and those that it is in. The `recursive` of Node.js calls a file system that is read-only a missing folder. */
export function makeFolder(path: string): void {
  try {
    mkdirSync(path);
  } catch (thrown) {
    if (systemCode(thrown) === 'ENOENT' && dirname(path) !== path) {
      makeFolder(dirname(path));
      mkdirSync(path);
    } else if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) throw thrown;
  }
}

/** Throws if a program that failed said last that a disk takes nothing more, or if that of the folder that it worked in is full. */
export function requireDisk(output: string, folder: string): void {
  const words = lastWord(output);
  const said = SAID.find(([pattern]) => pattern.test(words))?.[1];
  if (said !== undefined) throw new DiskError(said, folder);
  requireRoom(folder);
}

/** With less left a browser has failed by now, or will, in whatever way. */
const LEAST_BYTES = 1 << 20;

/** Throws if a folder's disk is as good as full. */
export function requireRoom(folder: string): void {
  if (isFull(folder)) throw new DiskError('ENOSPC', folder);
}

function isFull(folder: string): boolean {
  const { bavail, bfree, bsize, files, ffree } = statfsSync(folder);
  // The superuser may use what is kept from others.
  const blocks = process.getuid?.() === 0 ? bfree : bavail;
  return blocks * bsize < LEAST_BYTES || (files > 0 && ffree === 0);
}

/**
 * What to tell of an error of a disk, or undefined for another error. `then` is what to do when the disk is well again. Of
 * `places` one is named where the error itself names none.
 */
export function diskFailure(thrown: unknown, then: string, places: readonly string[] = []): LabError | undefined {
  const known = PROBLEMS[systemCode(thrown) ?? ''];
  if (known === undefined) return undefined;
  const [problem, remedy] = known;
  const named =
    thrown instanceof Error && 'path' in thrown && typeof thrown.path === 'string' ? thrown.path : undefined;
  const path = named ?? places.find((place) => existsSync(place) && isFull(place));
  const what = path === undefined ? 'cannot write' : `cannot write ${path}`;
  return new LabError(ExitCode.CannotCreate, `${what}: ${problem}`, `${remedy}, then ${then}`);
}
