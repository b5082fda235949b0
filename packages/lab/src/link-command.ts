import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { PORT } from './browser.js';
import type { Congestion } from './plan.js';

/** The server's end of the link. */
export const FAR_ADDRESS = '10.77.0.2';

export interface Link {
  readonly pronghorn: string;
  readonly profilePath: string;
  readonly seed: number;
  readonly congestion: Congestion;
  readonly reportPath: string;
  /** The command at the far end, started before the near one and ready when it listens. */
  readonly far: readonly string[];
  /** The command behind the link. */
  readonly near: readonly string[];
}

/** The command that runs two commands at the two ends of an emulated link. */
export function linkCommand(link: Link): string[] {
  return [
    link.pronghorn,
    'link',
    link.profilePath,
    ...['--seed', String(link.seed)],
    ...['--tcp-congestion', kernelName(link.congestion)],
    ...['--report', link.reportPath],
    ...['--far', shellWords(link.far)],
    ...['--far-ready', String(PORT)],
    '--',
    ...link.near,
  ];
}

/** The kernel calls New Reno "reno". */
export function kernelName(congestion: Congestion): string {
  return congestion === 'newreno' ? 'reno' : congestion;
}

/** One text that splits into `words` again by the rules of a POSIX shell. */
export function shellWords(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ');
}

/** A running command with its end. */
export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
}

export type Ended =
  | { readonly kind: 'exit'; readonly code: number }
  | { readonly kind: 'signal'; readonly signal: string }
  | { readonly kind: 'unstartable'; readonly reason: string };

/**
 * Starts a command with all its output going to one file.
 *
 * It gets a process group of its own, so that Ctrl-C at the terminal reaches the lab alone, which then ends the
 * command in order.
 */
export function start(command: readonly string[], outputPath: string): Running {
  const [program, ...args] = command as [string, ...string[]];
  const output = openSync(outputPath, 'w');
  try {
    const child = spawn(program, args, { stdio: ['ignore', output, output], detached: true });
    const ended = new Promise<Ended>((resolve) => {
      child.once('error', (error) => {
        resolve({ kind: 'unstartable', reason: error.message });
      });
      child.once('exit', (code, signal) => {
        resolve(code === null ? { kind: 'signal', signal: signal ?? '' } : { kind: 'exit', code });
      });
    });
    return { child, ended };
  } finally {
    closeSync(output);
  }
}

const TERM_WAIT_MS = 5_000;

/** Ends a running command: SIGTERM, which the link hands on, and after some seconds SIGKILL. */
export async function stop({ child, ended }: Running): Promise<void> {
  child.kill('SIGTERM');
  const force = setTimeout(() => child.kill('SIGKILL'), TERM_WAIT_MS);
  await ended;
  clearTimeout(force);
}

/** The last error line of a command's output, or its last line. */
export function lastWord(output: string): string {
  const lines = output.split('\n').filter((line) => line.trim() !== '');
  return (lines.findLast((line) => /^error: /i.test(line)) ?? lines.at(-1) ?? 'no output').trim();
}
