import { readdirSync, renameSync, rmdirSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import { makeFolder } from './disk.js';
import { ExitCode, LabError, messageOf, systemCode } from './errors.js';

/** Checks that `path` can become an output folder: it does not exist or is an empty folder. */
export function requireFree(path: string): void {
  let entries: string[];
  try {
    entries = readdirSync(path);
  } catch (thrown) {
    if (systemCode(thrown) === 'ENOENT') return;
    throw new LabError(
      ExitCode.CannotCreate,
      `cannot write to ${path}: ${messageOf(thrown)}`,
      'use another --out',
    );
  }
  if (entries.length > 0) {
    throw new LabError(
      ExitCode.CannotCreate,
      `the folder ${path} is not empty`,
      'use another --out',
    );
  }
}

/** Creates an output folder that `requireFree` accepts. */
export function createFolder(path: string): void {
  requireFree(path);
  make(path);
}

/**
 * Runs `fill` on a temporary folder that gets its final name when `fill` is done, so that nothing
 * half-written remains.
 */
export function writeFolderAtOnce(path: string, fill: (folder: string) => void): void {
  requireFree(path);
  const target = resolve(path);
  const partial = `${target}.partial-${process.pid}`;
  make(partial);
  try {
    fill(partial);
    rmdirIfThere(target);
    renameSync(partial, target);
  } catch (thrown) {
    rmSync(partial, { recursive: true, force: true });
    if (systemCode(thrown) === undefined) throw thrown;
    throw new LabError(
      ExitCode.CannotCreate,
      `cannot write ${path}: ${messageOf(thrown)}`,
      'use another --out',
    );
  }
}

function make(path: string): void {
  try {
    makeFolder(resolve(path));
  } catch (thrown) {
    throw new LabError(
      ExitCode.CannotCreate,
      `cannot create ${path}: ${messageOf(thrown)}`,
      'use another --out',
    );
  }
}

function rmdirIfThere(path: string): void {
  try {
    rmdirSync(path);
  } catch (thrown) {
    if (systemCode(thrown) !== 'ENOENT') throw thrown;
  }
}
