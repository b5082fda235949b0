import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeFolderAtOnce } from '../io/output-folder.js';
import { codingOf, encode } from './coding.js';
import type { Capture, Exchange, Note } from './exchange.js';
import {
  RECORDING_SCHEMA,
  storeBody,
  writeRecording,
  type Recording,
  type RecordingEntry,
} from './recording.js';
import { isSecret } from './secrets.js';

export const HAR = 'capture.har';

/** Writes a capture as a recording, all or nothing; `har` is the text of its HAR file. */
export function writeCapture(
  capture: Capture,
  folder: string,
  keepCookies: boolean,
  har?: string,
): Recording {
  const { kept, notes } = choose(capture);
  let written: Recording | undefined;
  writeFolderAtOnce(folder, (partial) => {
    const stored = kept.map((exchange, at) => store(exchange, at, partial, keepCookies));
    const all = unique([...capture.notes, ...notes, ...stored.flatMap(({ note }) => note ?? [])]);
    written = {
      schema: RECORDING_SCHEMA,
      url: capture.url,
      ...(capture.capturedAt !== undefined && { capturedAt: capture.capturedAt }),
      ...(capture.browser !== undefined && { browser: capture.browser }),
      ...(capture.document !== undefined && { document: capture.document }),
      requests: capture.requests,
      ...(capture.loadSeconds !== undefined && { loadSeconds: capture.loadSeconds }),
      entries: stored.map(({ entry }) => entry),
      notes: all,
    };
    writeRecording(partial, written);
    if (har !== undefined) writeFileSync(join(partial, HAR), har);
  });
  return written as Recording;
}

/** Lists a request that the page repeats only once. */
function unique(notes: readonly Note[]): Note[] {
  const told = new Map(notes.map((note) => [`${note.method} ${note.url} ${note.reason}`, note]));
  return [...told.values()];
}

/**
 * Chooses the one response that a replay has for a method and URL: the first complete one that does
 * not redirect to itself.
 */
function choose({ exchanges }: Capture): { kept: Exchange[]; notes: Note[] } {
  const notes: Note[] = [];
  const chosen = new Map<string, Exchange>();
  for (const exchange of exchanges) {
    const { method, url } = exchange;
    if (exchange.body === undefined) {
      notes.push({ method, url, reason: 'its body could not be read; a replay answers 404' });
      continue;
    }
    const key = `${method} ${url}`;
    const before = chosen.get(key);
    if (before === undefined) chosen.set(key, exchange);
    // The page's own request counts, even if the icon request came first.
    else if (before.icon === true && exchange.icon !== true) chosen.set(key, exchange);
    else if (leadsToItself(before)) chosen.set(key, exchange);
    else if (!sameAnswer(before, exchange)) {
      notes.push({
        method,
        url,
        reason: 'requested again with another response; a replay sends the first',
      });
    }
  }
  for (const { method, url } of chosen.values()) {
    if (!['GET', 'HEAD', 'OPTIONS'].includes(method)) {
      notes.push({
        method,
        url,
        reason: 'a replay sends the recorded response, whatever the request body',
      });
    }
  }
  return { kept: [...chosen.values()], notes };
}

function leadsToItself({ status, headers, url }: Exchange): boolean {
  const location = headers.find(([name]) => name.toLowerCase() === 'location')?.[1];
  if (status < 300 || status > 399 || location === undefined) return false;
  return URL.canParse(location, url) && new URL(location, url).href === url;
}

function sameAnswer(one: Exchange, other: Exchange): boolean {
  return (
    one.status === other.status && one.body !== undefined && other.body?.equals(one.body) === true
  );
}

function store(
  exchange: Exchange,
  at: number,
  folder: string,
  keepCookies: boolean,
): { entry: RecordingEntry; note?: Note } {
  const { method, url, status, body, wireBytes } = exchange;
  const headers = exchange.headers
    .map(([name, value]): [string, string] => [name.toLowerCase(), value])
    .filter(([name]) => keepCookies || !isSecret(name));
  const contentEncoding = headers.find(([name]) => name === 'content-encoding')?.[1];
  const coding = body === undefined || body.length === 0 ? undefined : codingOf(contentEncoding);
  const encoded = coding === undefined ? undefined : encode(body as Buffer, coding, wireBytes);
  const file = `bodies/${String(at + 1).padStart(4, '0')}-${fileName(url)}`;
  const entry: RecordingEntry = {
    method,
    url,
    status,
    // The replay adds `content-encoding` when it sends an encoded body.
    headers: headers.filter(([name]) => name !== 'content-encoding'),
    ...(body !== undefined && body.length > 0 && { body: storeBody(folder, file, body) }),
    ...(encoded !== undefined && {
      encoded: {
        coding: encoded.coding,
        ...storeBody(folder, `${file}.${encoded.coding}`, encoded.bytes),
      },
    }),
    ...(wireBytes !== undefined && { wireBytes }),
    ...(exchange.protocol !== undefined && { protocol: exchange.protocol }),
    ...(exchange.type !== undefined && { type: exchange.type }),
    startSeconds: exchange.startSeconds,
    ...(exchange.endSeconds !== undefined && { endSeconds: exchange.endSeconds }),
    ...(exchange.think !== undefined && {
      thinkSeconds: exchange.think.seconds,
      thinkFrom: exchange.think.from,
    }),
    ...(exchange.icon === true && { icon: true }),
  };
  const note = codingNote(method, url, contentEncoding, body, encoded?.coding);
  return note === undefined ? { entry } : { entry, note };
}

function codingNote(
  method: string,
  url: string,
  contentEncoding: string | undefined,
  body: Buffer | undefined,
  kept: string | undefined,
): Note | undefined {
  const was = contentEncoding?.trim().toLowerCase() ?? 'identity';
  if (
    body === undefined ||
    body.length === 0 ||
    was === 'identity' ||
    was === kept ||
    was === `x-${kept}`
  )
    return undefined;
  const reason =
    kept === undefined
      ? `was received as ${was}; a replay sends it unencoded`
      : `was received as ${was}; a replay sends it as ${kept}`;
  return { method, url, reason };
}

/** Returns the last part of a URL's path as a plain file name. */
function fileName(url: string): string {
  const last = new URL(url).pathname.split('/').at(-1) ?? '';
  const plain = last
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[.-]+/, '')
    .slice(-60);
  return plain === '' ? 'index' : plain;
}
