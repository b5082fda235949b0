import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { makeFolder, writingTo } from '../io/disk.js';
import { JobFile } from '../load/job.js';

/** Name of the campaign's folder with one folder per load for its traces. */
export const TRACES = 'traces';

/**
 * Kept traces: text files are compressed, folders kept unchanged. The browser's profile folder is
 * not useful.
 */
const TEXTS = [
  JobFile.Packets,
  JobFile.TcpInfo,
  JobFile.NetLog,
  JobFile.LinkReport,
  JobFile.Output,
] as const;
const FOLDERS = [JobFile.Screens, JobFile.Qlog] as const;

/** Returns the path of a load's traces relative to the campaign's folder. */
export function tracesOf(load: number): string {
  return `${TRACES}/${String(load).padStart(4, '0')}`;
}

/** Moves useful files from the load's own folder into the campaign's, and returns their path. */
export function keepTraces(from: string, out: string, load: number): string {
  const name = tracesOf(load);
  const target = join(out, name);
  // A repeated load, whose sample was lost, replaces the first.
  rmSync(target, { recursive: true, force: true });
  try {
    writingTo(target, () => {
      makeFolder(target);
      for (const file of TEXTS) {
        const source = join(from, file);
        if (existsSync(source))
          writeFileSync(join(target, `${file}.gz`), gzipSync(readFileSync(source)));
      }
      for (const folder of FOLDERS) {
        const source = join(from, folder);
        if (existsSync(source)) cpSync(source, join(target, folder), { recursive: true });
      }
    });
  } catch (thrown) {
    // Half of the traces are useless, and a full disk needs the space.
    rmSync(target, { recursive: true, force: true });
    throw thrown;
  }
  return name;
}
