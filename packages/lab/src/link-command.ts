import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import type { Congestion } from './plan.js';

/** The server's end of the link. */
export const FAR_ADDRESS = '10.77.0.2';
/** The browser's end. */
export const NEAR_ADDRESS = '10.77.0.1';

export interface Link {
  readonly pronghorn: string;
  readonly profilePath: string;
  /** False to leave the profile's jitter out. */
  readonly jitter?: false;
  readonly seed: number;
  readonly congestion: Congestion;
  /** Of TCP, at both ends; undefined for the kernel's. */
  readonly initialWindow?: number;
  /** Whether TCP begins again with it after a pause, at both ends. */
  readonly slowStartAfterIdle: boolean;
  readonly reportPath: string;
  /** Where to write each packet and samples of TCP's state; undefined for neither. */
  readonly traces?: { readonly packets: string; readonly tcpInfo: string };
  /** The DNS server that both ends ask. */
  readonly resolver?: string;
  /** The command line at the far end, started before the near one and ready when it listens on the port. */
  readonly far: string;
  readonly farPort: number;
  /** Command lines that run at the far end one after the other, before the command behind the link. */
  readonly warmUps?: readonly string[];
  /** How long the far end may take until it listens, and how long each of those. */
  readonly farSeconds?: number;
  /** The command behind the link. */
  readonly near: readonly string[];
}

/** The command that runs two commands at the two ends of an emulated link. */
export function linkCommand(link: Link): string[] {
  return [
    link.pronghorn,
    'link',
    link.profilePath,
    ...(link.jitter === false ? ['--no-jitter'] : []),
    ...['--seed', String(link.seed)],
    ...['--tcp-congestion', kernelName(link.congestion)],
    ...(link.initialWindow === undefined ? [] : ['--tcp-initial-window', String(link.initialWindow)]),
    ...['--tcp-slow-start-after-idle', link.slowStartAfterIdle ? 'on' : 'off'],
    ...['--report', link.reportPath],
    ...(link.traces === undefined ? [] : ['--packets', link.traces.packets, '--tcp-info', link.traces.tcpInfo]),
    ...(link.resolver === undefined ? [] : ['--resolver', link.resolver]),
    ...['--far', link.far],
    ...['--far-ready', String(link.farPort)],
    ...(link.farSeconds === undefined ? [] : ['--far-ready-seconds', String(link.farSeconds)]),
    ...(link.warmUps ?? []).flatMap((line) => ['--far-warm-up', line]),
    '--',
    ...link.near,
  ];
}

/** The kernel calls New Reno "reno". */
export function kernelName(congestion: Congestion): string {
  return congestion === 'newreno' ? 'reno' : congestion;
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
 * command in order. It inherits the machine's lock, so that a lab that is killed leaves the machine locked while its
 * link or browser still runs.
 */
export function start(command: readonly string[], outputPath: string, machineLock: number | undefined): Running {
  const [program, ...args] = command as [string, ...string[]];
  const output = openSync(outputPath, 'w');
  try {
    const child = spawn(program, args, { stdio: ['ignore', output, output, machineLock], detached: true });
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

/** Ends a running command: SIGTERM, which the link hands on, and after some seconds SIGKILL. */
export async function stop({ child, ended }: Running): Promise<void> {
  child.kill('SIGTERM');
  const force = setTimeout(() => child.kill('SIGKILL'), TERM_WAIT_MS);
  await ended;
  clearTimeout(force);
}

/** The last error line of a command's output, or its last line. */
export function lastWord(output: string): string {
  return lastWords(output, 1).word;
}

/** What the link says to a person at a terminal, where the output stands above. */
const ABOVE = ': its own messages stand above';

/** The last error line of a link's output or its last line, and the lines before it, which its commands wrote. */
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
  const said = last === undefined ? 'it printed nothing' : `the last that it printed: ${last.trim()}`;
  return { word: `${word.slice(0, -ABOVE.length)}; ${said}`, before };
}

/** A server may colour its lines, or print anything. */
function printable(line: string): string {
  // eslint-disable-next-line no-control-regex
  return line.replaceAll(/\u001b\[[\d;]*[A-Za-z]/g, '').replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
}
