import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Returns the SHA-256 over the files below a folder, including their paths. */
export function hashOfFiles(
  folder: string,
  isCounted: (path: string) => boolean = () => true,
): string {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const paths = entries
    .map(({ parentPath, name }) => relative(folder, join(parentPath, name)))
    .filter(isCounted);
  const hash = createHash('sha256');
  for (const path of paths.sort())
    hash.update(`${path}\0`).update(readFileSync(join(folder, path)));
  return hash.digest('hex');
}
