import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Returns the folders that contain this file, nearest first. The package's own folder and the
 * repository's root are among them, wherever the file was compiled to.
 */
export function foldersAbove(): string[] {
  const folders: string[] = [];
  for (
    let folder = dirname(fileURLToPath(import.meta.url));
    folder !== dirname(folder);
    folder = dirname(folder)
  ) {
    folders.push(folder);
  }
  return folders;
}

/** Returns the path of a file or folder that comes with the lab; undefined if it is missing. */
export function bundledFile(...name: string[]): string | undefined {
  return foldersAbove()
    .map((folder) => join(folder, ...name))
    .find((path) => existsSync(path));
}
