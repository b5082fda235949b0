import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Congestion } from '../campaign/plan.js';

/** Address of the server's end of the link. */
export const FAR_ADDRESS = '10.77.0.2';
/** Address of the browser's end. */
export const NEAR_ADDRESS = '10.77.0.1';

export interface Link {
  readonly pronghorn: string;
  readonly profilePath: string;
  /** False to remove the profile's jitter. */
  readonly jitter?: false;
  readonly seed: number;
  readonly congestion: Congestion;
  /** TCP's initial window at both ends; undefined for the kernel's. */
  readonly initialWindow?: number;
  /** Whether TCP restarts with it after a pause, at both ends. */
  readonly slowStartAfterIdle: boolean;
  readonly reportPath: string;
  /** Files for each packet and for samples of TCP's state; undefined for neither. */
  readonly traces?: { readonly packets: string; readonly tcpInfo: string };
  /** DNS server of both ends. */
  readonly resolver?: string;
  /**
   * Command line at the far end. It is started before the near command and is ready when it listens
   * on the port.
   */
  readonly far: string;
  readonly farPort: number;
  /** Command lines that run in sequence at the far end before the near command. */
  readonly warmUps?: readonly string[];
  /** Time limit for the far end to listen, and for each warm-up. */
  readonly farSeconds?: number;
  /** The command at the near end, behind the link. */
  readonly near: readonly string[];
}

/** Returns the command that runs two commands at the two ends of an emulated link. */
export function linkCommand(link: Link): string[] {
  return [
    link.pronghorn,
    'link',
    link.profilePath,
    ...(link.jitter === false ? ['--no-jitter'] : []),
    ...['--seed', String(link.seed)],
    ...['--tcp-congestion', kernelName(link.congestion)],
    ...(link.initialWindow === undefined
      ? []
      : ['--tcp-initial-window', String(link.initialWindow)]),
    ...['--tcp-slow-start-after-idle', link.slowStartAfterIdle ? 'on' : 'off'],
    ...['--report', link.reportPath],
    ...(link.traces === undefined
      ? []
      : ['--packets', link.traces.packets, '--tcp-info', link.traces.tcpInfo]),
    ...(link.resolver === undefined ? [] : ['--resolver', link.resolver]),
    ...['--far', link.far],
    ...['--far-ready', String(link.farPort)],
    ...(link.farSeconds === undefined ? [] : ['--far-ready-seconds', String(link.farSeconds)]),
    ...(link.warmUps ?? []).flatMap((line) => ['--far-warm-up', line]),
    '--',
    ...link.near,
  ];
}

/** Returns the kernel's name of a controller: New Reno is "reno". */
export function kernelName(congestion: Congestion): string {
  return congestion === 'newreno' ? 'reno' : congestion;
}

/** A running command and the promise of its end. */
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
 * It gets its own process group, so that Ctrl-C at the terminal reaches the lab alone, which then
 * ends the command cleanly. It inherits the machine's lock, so that a killed lab leaves the machine
 * locked while its link or browser still runs.
 */
export function start(
  command: readonly string[],
  outputPath: string,
  machineLock: number | undefined,
): Running {
  const [program, ...args] = command as [string, ...string[]];
  const output = openSync(outputPath, 'w');
  try {
    const child = spawn(program, args, {
      stdio: ['ignore', output, output, machineLock],
      detached: true,
    });
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

const TERM_WAIT_MS = 15_000;

/** Ends a running command: SIGTERM, which the link passes on, and after some seconds SIGKILL. */
export async function stop({ child, ended }: Running): Promise<void> {
  child.kill('SIGTERM');
  const force = setTimeout(() => child.kill('SIGKILL'), TERM_WAIT_MS);
  await ended;
  clearTimeout(force);
}

/** Returns the last error line of a command's output, or its last line. */
export function lastWord(output: string): string {
  return lastWords(output, 1).word;
}

/**
 * End of the link's message that refers to output above it on a terminal: `FarEndedEarly` in
 * `crates/link/src/error.rs`.
 */
const ABOVE = ': its own messages stand above';

/**
 * Returns the last error line of a link's output or its last line, and the lines before it, which
 * its commands wrote.
 */
export function lastWords(output: string, most: number): { word: string; before: string[] } {
  const lines = output
    .split('\n')
    .map(printable)
    .filter((line) => line.trim() !== '');
  const error = lines.findLastIndex((line) => /^error: /i.test(line));
  const at = error < 0 ? lines.length - 1 : error;
  const before = lines.slice(Math.max(0, at - most), Math.max(0, at));
  const word = (lines[at] ?? 'no output').trim();
  if (!word.endsWith(ABOVE)) return { word, before };
  const last = before.at(-1);
  const said = last === undefined ? 'no output before it' : `last output: ${last.trim()}`;
  return { word: `${word.slice(0, -ABOVE.length)}; ${said}`, before };
}

/** Removes control characters: a server may colour its lines, or print anything. */
function printable(line: string): string {
  // eslint-disable-next-line no-control-regex
  const plain = line.replaceAll(/\u001b\[[\d;]*[A-Za-z]/g, '');
  // eslint-disable-next-line no-control-regex
  return plain.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
}
