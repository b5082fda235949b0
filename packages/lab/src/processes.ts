import { readFileSync } from 'node:fs';

/** The words of a process's command line, each with a NUL after it; empty when the process is gone. */
export function commandLine(pid: number): string {
  return readOr(`/proc/${pid}/cmdline`, '');
}

export function parentOf(pid: number): number {
  // The second field, a name in brackets, may hold anything; the parent is the fourth.
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
