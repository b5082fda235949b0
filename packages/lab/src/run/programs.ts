import { spawnSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { ExitCode, LabError } from '../io/errors.js';
import { foldersAbove } from '../io/bundled-file.js';

export interface Pronghorn {
  readonly path: string;
  readonly version: string;
}

const BUILD_HINT = 'build it with `cargo build --release`, or set PRONGHORN=/path/to/pronghorn';

/** Finds the `pronghorn` program: the given path, else this repository's build, else the PATH. */
export function findPronghorn(given: string | undefined): Pronghorn {
  const path = given ?? builtHere() ?? findOnPath(['pronghorn']);
  if (path === undefined)
    throw new LabError(ExitCode.Unavailable, 'cannot find the program pronghorn', BUILD_HINT);
  if (!isProgram(path)) {
    throw new LabError(
      ExitCode.Unavailable,
      `pronghorn: ${path} does not exist or is not executable`,
      BUILD_HINT,
    );
  }
  const absolute = resolve(path);
  const run = spawnSync(absolute, ['--version'], { encoding: 'utf8', timeout: 10_000 });
  const version = /^pronghorn (\S+)/.exec(run.stdout)?.[1];
  if (run.status !== 0 || version === undefined) {
    throw new LabError(
      ExitCode.Unavailable,
      `${path} --version printed no version of pronghorn`,
      BUILD_HINT,
    );
  }
  return { path: absolute, version };
}

/** Returns the first of `names` that is a program in a folder of the PATH, or in one of `more`. */
export function findOnPath(
  names: readonly string[],
  more: readonly string[] = [],
): string | undefined {
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== ''),
    ...more,
  ];
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isProgram);
}

function builtHere(): string | undefined {
  const target = process.env.CARGO_TARGET_DIR;
  const targets = [
    ...(target === undefined ? [] : [resolve(target)]),
    ...foldersAbove().map((each) => join(each, 'target')),
  ];
  return targets.map((folder) => join(folder, 'release', 'pronghorn')).find(isProgram);
}

/** Returns whether `path` is an executable file. */
export function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
