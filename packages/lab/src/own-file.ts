import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folders in which this file is, nearest first: among them the package's own and the repository's root, wherever it was compiled to. */
export function foldersAbove(): string[] {
  const folders: string[] = [];
  for (let folder = dirname(fileURLToPath(import.meta.url)); folder !== dirname(folder); folder = dirname(folder)) {
    folders.push(folder);
  }
  return folders;
}

/** The place of a file or folder that comes with the lab, or undefined. */
export function ownFile(...name: string[]): string | undefined {
  return foldersAbove()
    .map((folder) => join(folder, ...name))
    .find((path) => existsSync(path));
}
