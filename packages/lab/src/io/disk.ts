/**
 * Errors of disks that are full, read-only or broken. They are no bug of this program and do not
 * invalidate earlier measurements.
 */
import { existsSync, mkdirSync, statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { ExitCode, LabError, systemCode } from './errors.js';
import { lastWord } from '../run/link-command.js';

/** Description and remedy for each system error code. */
const PROBLEMS: Readonly<Record<string, readonly [problem: string, remedy: string]>> = {
  ENOSPC: ['no space left on the disk', 'free some space'],
  EDQUOT: ['the disk quota is used up', 'free some space'],
  EROFS: ['the file system is read-only', 'make it writable'],
  EIO: ['the disk reports an input/output error', 'check the disk'],
};

/** The same errors in the C library's words, for messages of other programs. */
const SAID: readonly (readonly [RegExp, string])[] = [
  [/\bENOSPC\b|No space left on device/, 'ENOSPC'],
  [/\bEDQUOT\b|Disk quota exceeded/, 'EDQUOT'],
  [/\bEROFS\b|Read-only file system/, 'EROFS'],
  [/\bEIO\b|Input\/output error/, 'EIO'],
];

/** A disk error for which the system throws no error of its own. */
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

/**
 * Runs `write`, and adds `path` to its errors, which the system leaves out of an error of a write.
 */
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

/**
 * Creates a folder and its parents. The `recursive` option of Node.js reports a read-only file
 * system as a missing folder.
 */
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

/**
 * Throws if a failed program reported a disk error last, or if the disk of its working folder is
 * full.
 */
export function requireDisk(output: string, folder: string): void {
  const words = lastWord(output);
  const said = SAID.find(([pattern]) => pattern.test(words))?.[1];
  if (said !== undefined) throw new DiskError(said, folder);
  requireFreeSpace(folder);
}

/** Free space below which a browser has failed or will fail in some way. */
const MIN_FREE_BYTES = 1 << 20;

/** Throws if a folder's disk is nearly full. */
export function requireFreeSpace(folder: string): void {
  if (isFull(folder)) throw new DiskError('ENOSPC', folder);
}

function isFull(folder: string): boolean {
  const { bavail, bfree, bsize, files, ffree } = statfsSync(folder);
  // The superuser may use the reserved blocks.
  const blocks = process.getuid?.() === 0 ? bfree : bavail;
  return blocks * bsize < MIN_FREE_BYTES || (files > 0 && ffree === 0);
}

/**
 * Returns the error to report for a disk error; undefined for other errors. `then` is what to do
 * when the disk is usable again. If the error names no path, one of `places` is named.
 */
export function diskFailure(
  thrown: unknown,
  then: string,
  places: readonly string[] = [],
): LabError | undefined {
  const known = PROBLEMS[systemCode(thrown) ?? ''];
  if (known === undefined) return undefined;
  const [problem, remedy] = known;
  const named =
    thrown instanceof Error && 'path' in thrown && typeof thrown.path === 'string'
      ? thrown.path
      : undefined;
  const path = named ?? places.find((place) => existsSync(place) && isFull(place));
  const what = path === undefined ? 'cannot write' : `cannot write ${path}`;
  return new LabError(ExitCode.CannotCreate, `${what}: ${problem}`, `${remedy}, then ${then}`);
}
