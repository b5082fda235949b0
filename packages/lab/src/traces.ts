import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { makeFolder, writingTo } from './disk.js';
import { JobFile } from './load/job.js';

/** Folder of a campaign in which each load has one with what explains it. */
export const TRACES = 'traces';

/** Of these a text is kept compressed, and a folder as it is. The browser's own profile folder explains nothing. */
const TEXTS = [JobFile.Packets, JobFile.TcpInfo, JobFile.NetLog, JobFile.LinkReport, JobFile.Output] as const;
const FOLDERS = [JobFile.Screens, JobFile.Qlog] as const;

/** The folder of a load's traces, seen from the campaign's. */
export function tracesOf(load: number): string {
  return `${TRACES}/${String(load).padStart(4, '0')}`;
}

/** Moves what is worth keeping from the load's own folder into the campaign's, and says where it is. */
export function keepTraces(from: string, out: string, load: number): string {
  const name = tracesOf(load);
  const target = join(out, name);
  // A load that is made again, because its sample was lost, takes the place of the first.
  rmSync(target, { recursive: true, force: true });
  try {
    writingTo(target, () => {
      makeFolder(target);
      for (const file of TEXTS) {
        const source = join(from, file);
        if (existsSync(source)) writeFileSync(join(target, `${file}.gz`), gzipSync(readFileSync(source)));
      }
      for (const folder of FOLDERS) {
        const source = join(from, folder);
        if (existsSync(source)) cpSync(source, join(target, folder), { recursive: true });
      }
    });
  } catch (thrown) {
    // Half of them explains nothing, and a disk that is full has better use for the room.
    rmSync(target, { recursive: true, force: true });
    throw thrown;
  }
  return name;
}
