import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from '../errors.js';
import type { Expected, RecordedRequest } from '../load/expected.js';
import { THINK_TIME_SOURCES } from './think-time.js';

/** The file that makes a folder a recording: `pronghorn replay` serves what it lists. */
export const RECORDING = 'recording.json';
/** Raised when a field changes its meaning. */
export const RECORDING_SCHEMA = 1;

const storedBody = z.object({
  /** Below the recording's folder. */
  file: z.string(),
  size: z.int().min(0),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});

const entry = z.object({
  method: z.string().min(1),
  url: z.url({ protocol: /^https?$/ }),
  status: z.int().min(100).max(599),
  /** Lower-case names, in the order of the response. */
  headers: z.array(z.tuple([z.string(), z.string()])),
  /** The content without any coding; nothing for a response without content. */
  body: storedBody.optional(),
  /** The same content in the coding that it came in. */
  encoded: storedBody.extend({ coding: z.enum(['br', 'deflate', 'gzip', 'zstd']) }).optional(),
  /** Bytes of content that crossed the network when it was captured, where that is known. */
  wireBytes: z.int().min(0).optional(),
  protocol: z.string().optional(),
  type: z.string().optional(),
  /** Seconds since the first request. */
  startSeconds: z.number().optional(),
  endSeconds: z.number().optional(),
  /** How long the server took before it answered, without what the network took; left out where it is not known. */
  thinkSeconds: z.number().min(0).max(600).optional(),
  /** Counted from its own wait, or estimated from others. Absent of recordings of before the two were told apart. */
  thinkFrom: z.enum(THINK_TIME_SOURCES).optional(),
  /** The browser's own request for the page's icon: no load is judged by it. */
  icon: z.boolean().optional(),
});

const recording = z.object({
  schema: z.literal(RECORDING_SCHEMA),
  /** What to load. */
  url: z.url({ protocol: /^https?$/ }),
  capturedAt: z.iso.datetime().optional(),
  browser: z.string().optional(),
  /** What `url` led to, by redirects or by itself. */
  document: z.object({ url: z.string(), status: z.int(), title: z.string().optional() }).optional(),
  /** Requests of the load that was captured, failed ones and repeated ones too. */
  requests: z.int().min(1),
  /** When the load event began, in seconds since the first request. Later requests are replayed, and no load is judged by them. */
  loadSeconds: z.number().optional(),
  entries: z.array(entry).min(1),
  /** What a replay cannot give as it was, and why. */
  notes: z.array(z.object({ method: z.string(), url: z.string(), reason: z.string() })).optional(),
});

export type Recording = z.infer<typeof recording>;
export type RecordingEntry = Recording['entries'][number];
export type StoredBody = z.infer<typeof storedBody>;

/** Writes a body below `folder` and says where and what it is. */
export function storeBody(folder: string, file: string, body: Buffer): StoredBody {
  const path = join(folder, file);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, body);
  return describeBody(file, body);
}

export function describeBody(file: string, body: Buffer): StoredBody {
  return { file, size: body.length, sha256: createHash('sha256').update(body).digest('hex') };
}

export function writeRecording(folder: string, content: Recording): void {
  writeFileSync(join(folder, RECORDING), `${JSON.stringify(content, undefined, 2)}\n`);
}

/** Whether `folder` holds a recording, so that `pronghorn replay` and not `pronghorn serve` is what serves it. */
export function isRecording(folder: string): boolean {
  return statSync(join(folder, RECORDING), { throwIfNoEntry: false })?.isFile() === true;
}

/** What the lab has to know of a recording that it is going to load. */
export interface RecordingFacts {
  readonly url: string;
  /** Those that count for a complete load. */
  readonly requests: number;
  /** Those that do not: they began after the load event, or were for the page's icon. */
  readonly uncounted: number;
  /** Bytes of all bodies that count, as they are sent to a browser that takes their codings. */
  readonly bytes: number;
  /** The same where each load is known to fetch all of them: of a page that was generated, not captured. */
  readonly leastBytes: number | undefined;
  readonly expected: Omit<Extract<Expected, { kind: 'recording' }>, 'kind'>;
  /** `host:port` of each origin, the document's first. */
  readonly origins: readonly string[];
  /** The manifest as it is written, which holds a hash of each body. */
  readonly text: string;
  readonly recording: Recording;
}

/** Reads a recording's manifest. `pronghorn replay` checks the bodies. */
export function readRecording(folder: string): RecordingFacts {
  const path = join(folder, RECORDING);
  const text = readManifest(path, folder);
  const parsed = recording.safeParse(json(text, path));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const where = issue === undefined ? '' : ` at ${issue.path.join('.')}: ${issue.message}`;
    throw new LabError(ExitCode.Malformed, `${path} is not a recording${where}`, 'capture the page again');
  }
  const { url, entries } = parsed.data;
  const origins = [url, ...entries.map((each) => each.url)].map(originOf);
  const counted = entries.filter((each) => whenOf(each, parsed.data) !== 'after-load' && each.icon !== true);
  const bytes = counted.reduce((sum, { body, encoded }) => sum + ((encoded ?? body)?.size ?? 0), 0);
  const isGenerated = entries.every(({ startSeconds }) => startSeconds === undefined);
  return {
    url,
    requests: counted.length,
    uncounted: entries.length - counted.length,
    bytes,
    leastBytes: isGenerated ? bytes : undefined,
    expected: expectedOf(parsed.data),
    origins: [...new Set(origins)],
    text,
    recording: parsed.data,
  };
}

function expectedOf(made: Recording): RecordingFacts['expected'] {
  const { url, document, entries, loadSeconds = 0 } = made;
  const requests = entries
    .filter(({ icon }) => icon !== true)
    .map((each) => ({ method: each.method, url: each.url, status: each.status, when: whenOf(each, made) }));
  const status = document?.status ?? entries.find((each) => each.url === url)?.status ?? 200;
  return { requests, documentStatus: status, loadSeconds };
}

/** A generated page has no times: its load event waits for all that it has. */
function whenOf({ method, url, startSeconds }: RecordingEntry, made: Recording): RecordedRequest['when'] {
  if (url === made.url || startSeconds === undefined) return 'before-load';
  // Whether a browser asks for leave again is up to what it remembers.
  if (made.loadSeconds === undefined || startSeconds < 0 || method === 'OPTIONS') return 'unknown';
  return startSeconds <= made.loadSeconds ? 'before-load' : 'after-load';
}

function readManifest(path: string, folder: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (systemCode(thrown) !== 'ENOENT' && systemCode(thrown) !== 'ENOTDIR') {
      throw new LabError(ExitCode.InputMissing, `${path} cannot be read: ${messageOf(thrown)}`);
    }
    throw new LabError(
      ExitCode.InputMissing,
      `the folder ${folder} has no ${RECORDING}`,
      'make a recording with `pronghorn-lab capture URL --out DIR`',
    );
  }
}

function json(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    throw new LabError(ExitCode.Malformed, `${path} is not JSON: ${messageOf(thrown)}`, 'capture the page again');
  }
}

/** Host and port of a URL, the port written out. */
export function originOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  return `${hostname}:${port === '' ? (protocol === 'http:' ? '80' : '443') : port}`;
}
