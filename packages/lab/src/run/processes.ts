import { readFileSync } from 'node:fs';

/**
 * Returns a process's command line, with a NUL after each argument; empty if the process is gone.
 */
export function commandLine(pid: number): string {
  return readOr(`/proc/${pid}/cmdline`, '');
}

export function parentOf(pid: number): number {
  // The second field, a name in brackets, may contain anything; the parent is the fourth.
  const fields = readOr(`/proc/${pid}/stat`, '');
  return Number(fields.slice(fields.lastIndexOf(')') + 2).split(' ')[1]);
}

export function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}
