import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from '../io/errors.js';
import { writeFolderAtOnce } from '../io/output-folder.js';
import {
  describeBody,
  isRecording,
  readRecording,
  RECORDING_SCHEMA,
  writeRecording,
  type Recording,
  type RecordingFacts,
} from '../capture/recording.js';
import { hostOf, type Page, type PageFile } from './generate.js';

export const MANIFEST = 'page.json';

const CONTENT_TYPES: Readonly<Record<PageFile['kind'], string>> = {
  document: 'text/html; charset=utf-8',
  stylesheet: 'text/css; charset=utf-8',
  script: 'text/javascript; charset=utf-8',
  font: 'font/ttf',
  image: 'image/png',
};

const manifest = z.object({ name: z.string(), requests: z.int().min(1), bytes: z.int().min(0) });

/** The properties of a page that the lab needs to serve it. */
export interface PageFacts {
  readonly name: string;
  /** Number of requests that count for a complete load. Undefined for an external page. */
  readonly requests: number | undefined;
  /** Bytes of all bodies that count; undefined for a folder that the lab did not generate. */
  readonly bytes: number | undefined;
  /**
   * Minimum number of bytes of a complete load; undefined for a page whose requests may differ each
   * time.
   */
  readonly leastBytes: number | undefined;
  /** Text of the manifest, which contains a hash of each file. */
  readonly manifestText: string | undefined;
  /** Facts of a recording, which has hosts and a document of its own. */
  readonly recording?: RecordingFacts;
  /** Set for a page that is loaded from its own server. */
  readonly live?: { readonly url: string; readonly spki: string | undefined };
}

/**
 * Writes a generated page and its manifest into `folder`, all or nothing. A page on several hosts
 * also becomes a recording, so that `pronghorn replay` can serve all hosts.
 */
export function writePage(page: Page, folder: string): void {
  writeFolderAtOnce(folder, (partial) => {
    for (const each of page.files) {
      const file = join(partial, fileOf(each));
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, each.body);
    }
    writeFileSync(join(partial, MANIFEST), `${JSON.stringify(page.manifest, undefined, 2)}\n`);
    if (page.files.some(({ origin }) => origin !== undefined))
      writeRecording(partial, recordingOf(page));
  });
}

function fileOf({ origin, path }: PageFile): string {
  return origin === undefined ? path : `origins/${origin}/${path}`;
}

function recordingOf(page: Page): Recording {
  const entries = page.files.map((file) => ({
    method: 'GET',
    url: `https://${hostOf(file, page.host)}/${file.kind === 'document' ? '' : file.path}`,
    status: 200,
    // Browsers accept fonts of other hosts only with CORS permission.
    headers: [
      ['content-type', CONTENT_TYPES[file.kind]],
      ['access-control-allow-origin', '*'],
    ] as [string, string][],
    body: describeBody(fileOf(file), file.body),
  }));
  const url = `https://${page.host}/`;
  return { schema: RECORDING_SCHEMA, url, requests: page.files.length, entries };
}

/**
 * Inspects a folder that contains a page. The number of its requests comes from its manifest, or
 * from the plan for a page that the lab did not generate.
 */
export function inspectPageFolder(folder: string, requestsInPlan: number | undefined): PageFacts {
  if (isRecording(folder)) {
    if (requestsInPlan !== undefined) {
      throw new LabError(
        ExitCode.Malformed,
        `the plan sets \`requests = ${requestsInPlan}\`, but ${folder} is a recording, which lists the requests that count`,
        'remove `requests` from the plan',
      );
    }
    const recording = readRecording(folder);
    const { requests, bytes, leastBytes, text } = recording;
    return { name: folder, requests, bytes, leastBytes, manifestText: text, recording };
  }
  requireFile(join(folder, 'index.html'), folder);
  const known = readManifest(folder);
  if (known === undefined && requestsInPlan === undefined) {
    throw new LabError(
      ExitCode.Malformed,
      `the page folder ${folder} has no ${MANIFEST}, so the number of its requests is unknown`,
      "add `requests = N` to the plan's [page] table",
    );
  }
  if (known !== undefined && requestsInPlan !== undefined && known.requests !== requestsInPlan) {
    throw new LabError(
      ExitCode.Malformed,
      `the plan sets \`requests = ${requestsInPlan}\`, but ${folder}/${MANIFEST} has ${known.requests}`,
      'remove `requests` from the plan',
    );
  }
  const unknown = { bytes: undefined, leastBytes: undefined, manifestText: undefined };
  return known ?? { name: folder, requests: requestsInPlan, ...unknown };
}

function requireFile(file: string, folder: string): void {
  try {
    if (statSync(file).isFile()) return;
  } catch (thrown) {
    if (systemCode(thrown) !== 'ENOENT' && systemCode(thrown) !== 'ENOTDIR') throw thrown;
  }
  throw new LabError(
    ExitCode.InputMissing,
    `the page folder ${folder} has no index.html`,
    'generate a page with `pronghorn-lab page SPEC --out DIR`, or name a folder that contains one',
  );
}

function readManifest(folder: string): PageFacts | undefined {
  const file = join(folder, MANIFEST);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (thrown) {
    if (systemCode(thrown) === 'ENOENT') return undefined;
    throw new LabError(ExitCode.InputMissing, `cannot read ${file}: ${messageOf(thrown)}`);
  }
  try {
    const { name, requests, bytes } = manifest.parse(JSON.parse(text));
    return { name, requests, bytes, leastBytes: bytes, manifestText: text };
  } catch {
    throw new LabError(
      ExitCode.Malformed,
      `${file} is not a valid page manifest`,
      'generate the page again',
    );
  }
}
