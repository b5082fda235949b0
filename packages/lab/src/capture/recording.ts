import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from '../io/errors.js';
import type { Expected, RecordedRequest } from '../load/expected.js';
import { THINK_TIME_SOURCES } from './think-time.js';

/**
 * Name of the manifest that makes a folder a recording: `pronghorn replay` serves what it lists.
 */
export const RECORDING = 'recording.json';
/** Increased when a field changes its meaning. */
export const RECORDING_SCHEMA = 1;

const storedBody = z.object({
  /** Path relative to the recording's folder. */
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
  /** The decoded body; absent for a response without a body. */
  body: storedBody.optional(),
  /** The same body in the content coding that was received. */
  encoded: storedBody.extend({ coding: z.enum(['br', 'deflate', 'gzip', 'zstd']) }).optional(),
  /** Bytes of the body on the wire during the capture, if known. */
  wireBytes: z.int().min(0).optional(),
  protocol: z.string().optional(),
  type: z.string().optional(),
  /** Seconds since the first request. */
  startSeconds: z.number().optional(),
  endSeconds: z.number().optional(),
  /** Server's time before the response, without network time; absent if unknown. */
  thinkSeconds: z.number().min(0).max(600).optional(),
  /**
   * Whether the think time was counted from the response's own wait or estimated from others.
   * Absent in recordings older than this field.
   */
  thinkFrom: z.enum(THINK_TIME_SOURCES).optional(),
  /**
   * Whether this is the browser's own request for the page's icon, which does not count for a
   * complete load.
   */
  icon: z.boolean().optional(),
});

const recording = z.object({
  schema: z.literal(RECORDING_SCHEMA),
  /** URL to load. */
  url: z.url({ protocol: /^https?$/ }),
  capturedAt: z.iso.datetime().optional(),
  browser: z.string().optional(),
  /** The document that `url` led to, directly or through redirects. */
  document: z.object({ url: z.string(), status: z.int(), title: z.string().optional() }).optional(),
  /** Number of requests during the capture, including failed and repeated ones. */
  requests: z.int().min(1),
  /**
   * Start of the load event, in seconds since the first request. Later requests are replayed but do
   * not count for a complete load.
   */
  loadSeconds: z.number().optional(),
  entries: z.array(entry).min(1),
  /** Differences between the recording and its replay, with reasons. */
  notes: z.array(z.object({ method: z.string(), url: z.string(), reason: z.string() })).optional(),
});

export type Recording = z.infer<typeof recording>;
export type RecordingEntry = Recording['entries'][number];
export type StoredBody = z.infer<typeof storedBody>;

/** Writes a body below `folder` and returns its path, size and hash. */
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

/**
 * Returns whether `folder` is a recording, which `pronghorn replay` serves instead of `pronghorn
 * serve`.
 */
export function isRecording(folder: string): boolean {
  return statSync(join(folder, RECORDING), { throwIfNoEntry: false })?.isFile() === true;
}

/** The properties of a recording that a load needs. */
export interface RecordingFacts {
  readonly url: string;
  /** Number of requests that count for a complete load. */
  readonly requests: number;
  /** Number of requests that do not count: after the load event, or for the page's icon. */
  readonly uncounted: number;
  /** Bytes of all bodies that count, as sent to a browser that accepts their codings. */
  readonly bytes: number;
  /** The same if each load is known to fetch all of them, as with a generated page. */
  readonly leastBytes: number | undefined;
  readonly expected: Omit<Extract<Expected, { kind: 'recording' }>, 'kind'>;
  /** `host:port` of each origin, the document's first. */
  readonly origins: readonly string[];
  /** Text of the manifest, which contains a hash of each body. */
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
    throw new LabError(
      ExitCode.Malformed,
      `${path} is not a valid recording${where}`,
      'capture the page again',
    );
  }
  const { url, entries } = parsed.data;
  const origins = [url, ...entries.map((each) => each.url)].map(originOf);
  const counted = entries.filter(
    (each) => whenOf(each, parsed.data) !== 'after-load' && each.icon !== true,
  );
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
    .map((each) => ({
      method: each.method,
      url: each.url,
      status: each.status,
      when: whenOf(each, made),
    }));
  const status = document?.status ?? entries.find((each) => each.url === url)?.status ?? 200;
  return { requests, documentStatus: status, loadSeconds };
}

/**
 * Returns when a request was made. A generated page has no times: its load event waits for
 * everything.
 */
function whenOf(
  { method, url, startSeconds }: RecordingEntry,
  made: Recording,
): RecordedRequest['when'] {
  if (url === made.url || startSeconds === undefined) return 'before-load';
  // Whether a browser sends a preflight request again depends on its cache.
  if (made.loadSeconds === undefined || startSeconds < 0 || method === 'OPTIONS') return 'unknown';
  return startSeconds <= made.loadSeconds ? 'before-load' : 'after-load';
}

function readManifest(path: string, folder: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (systemCode(thrown) !== 'ENOENT' && systemCode(thrown) !== 'ENOTDIR') {
      throw new LabError(ExitCode.InputMissing, `cannot read ${path}: ${messageOf(thrown)}`);
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
    throw new LabError(
      ExitCode.Malformed,
      `${path} is not JSON: ${messageOf(thrown)}`,
      'capture the page again',
    );
  }
}

/** Returns host and port of a URL, with the port written out. */
export function originOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  return `${hostname}:${port === '' ? (protocol === 'http:' ? '80' : '443') : port}`;
}
