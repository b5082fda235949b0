import { harFromMessages } from 'chrome-har';
import { z } from 'zod';
import { ExitCode, LabError, messageOf } from '../errors.js';
import { readText } from '../toml-file.js';
import type { Capture, Exchange, Note } from './exchange.js';
import type { Message } from './recorder.js';
import { originOf } from './recording.js';
import { isSecret } from './secrets.js';
import { thinkTimes, type Wait } from './think-time.js';

interface NameValue {
  name: string;
  value: string;
}

/** The parts of HAR 1.2 that hold secrets, sizes or times. */
interface HarEntry {
  time: number;
  timings: Record<string, number>;
  request: {
    method: string;
    url: string;
    headers: NameValue[];
    cookies: unknown[];
    postData?: { text?: string; params?: unknown[] };
  };
  response?: { headers: NameValue[]; cookies: unknown[]; content: { size: number } };
}

/** The text of a HAR 1.2 file of a load, without content: that is in the recording beside it. */
export function harOf(messages: readonly Message[], exchanges: readonly Exchange[], keepCookies: boolean): string {
  const har = harFromMessages([...messages]) as { log: { entries: HarEntry[] } };
  const known = new Map(exchanges.map((exchange) => [`${exchange.method} ${exchange.url}`, exchange]));
  for (const entry of har.log.entries) {
    const { request, response } = entry;
    const exchange = known.get(`${request.method} ${request.url}`);
    if (response !== undefined) response.content.size = exchange?.body?.length ?? 0;
    if (!Object.values(entry.timings).every(Number.isFinite)) Object.assign(entry, wholeTime(exchange));
    if (keepCookies) continue;
    for (const side of [request, response ?? request]) {
      side.cookies = [];
      side.headers = side.headers.filter(({ name }) => !isSecret(name));
    }
    // A form may hold a password.
    if (request.postData !== undefined) Object.assign(request.postData, { text: '', params: [] });
  }
  return `${JSON.stringify(har, undefined, 1)}\n`;
}

/** HAR files of some browsers say null where others leave a key out. */
const maybeNumber = z
  .number()
  .nullish()
  .transform((value) => value ?? undefined);
const maybeText = z
  .string()
  .nullish()
  .transform((value) => value ?? undefined);

/** For what Chromium gives no timing of, such as the script of a worker: all of its time is waiting. */
function wholeTime(exchange: Exchange | undefined): Pick<HarEntry, 'time' | 'timings'> {
  const time = 1000 * ((exchange?.endSeconds ?? 0) - (exchange?.startSeconds ?? 0));
  return { time, timings: { blocked: -1, dns: -1, connect: -1, ssl: -1, send: 0, wait: time, receive: 0 } };
}

const nameValues = z.array(z.object({ name: z.string(), value: z.string() }));

const harFile = z.object({
  log: z.object({
    creator: z.object({ name: z.string(), version: z.string().optional() }).optional(),
    browser: z.object({ name: z.string(), version: z.string().optional() }).optional(),
    entries: z
      .array(
        z.object({
          startedDateTime: z.string(),
          time: maybeNumber,
          _resourceType: maybeText,
          timings: z.object({ wait: maybeNumber, connect: maybeNumber, ssl: maybeNumber }).nullish(),
          request: z.object({ method: z.string(), url: z.string() }),
          response: z.object({
            status: z.number(),
            httpVersion: maybeText,
            headers: nameValues,
            bodySize: maybeNumber,
            _transferSize: maybeNumber,
            headersSize: maybeNumber,
            content: z.object({
              size: maybeNumber,
              text: maybeText,
              encoding: maybeText,
            }),
          }),
        }),
      )
      .min(1),
  }),
});

type ReadEntry = z.infer<typeof harFile>['log']['entries'][number];

/** Reads a HAR file that somebody exported with content. The first entry is what a replay loads. */
export function readHar(path: string): Capture {
  const parsed = harFile.safeParse(parseJson(readText(path, 'the HAR file'), path));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new LabError(
      ExitCode.Malformed,
      `${path} is no HAR file: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`,
    );
  }
  const { entries, browser, creator } = parsed.data.log;
  const web = entries.filter(({ request }) => /^https?:/.test(request.url) && URL.canParse(request.url));
  const [first] = web;
  if (first === undefined) throw new LabError(ExitCode.Malformed, `${path} has no request over http or https`);
  if (web.every(({ response }) => response.content.text === undefined)) {
    throw new LabError(
      ExitCode.Malformed,
      `${path} holds no content of any response`,
      'export it with content ("Save all as HAR with content"), or capture the URL itself',
    );
  }
  const began = Date.parse(first.startedDateTime);
  const think = thinkTimes(web.map(waitOf));
  const read = web.map((entry, at) => withThinkTime(exchangeOf(entry, began), think[at]));
  const made = browser ?? creator;
  return {
    url: withoutFragment(first.request.url),
    capturedAt: Number.isNaN(began) ? undefined : new Date(began).toISOString(),
    browser: made === undefined ? undefined : `${made.name} ${made.version ?? ''}`.trim(),
    requests: web.length,
    exchanges: read.filter((each): each is Exchange => 'status' in each),
    notes: read.filter((each): each is Note => 'reason' in each),
  };
}

/** Times of HAR are -1 where there was nothing, and that of TLS is in that of the connection. */
function waitOf({ request, timings }: ReadEntry): Wait {
  const { wait, connect = -1, ssl = -1 } = timings ?? {};
  return {
    origin: originOf(request.url),
    waitMs: wait,
    connectMs: connect < 0 ? undefined : connect - Math.max(0, ssl),
  };
}

function withThinkTime(read: Exchange | Note, thinkSeconds: number | undefined): Exchange | Note {
  return 'reason' in read || thinkSeconds === undefined ? read : { ...read, thinkSeconds };
}

function exchangeOf(
  { request, response, startedDateTime, time, _resourceType: type }: ReadEntry,
  began: number,
): Exchange | Note {
  const { method } = request;
  const url = withoutFragment(request.url);
  const status = Math.trunc(response.status);
  if (status < 200 || status > 599)
    return { method, url, reason: 'has no response in the HAR file; a replay answers 404' };
  const start = (Date.parse(startedDateTime) - began) / 1000;
  return {
    method,
    url,
    status,
    // A name with a colon is a pseudo-header field.
    headers: response.headers
      .filter(({ name }) => !name.startsWith(':'))
      .map(({ name, value }) => [name.toLowerCase(), value]),
    body: contentOf(method, status, response),
    wireBytes: wireBytesOf(response),
    protocol: response.httpVersion,
    type,
    startSeconds: Number.isNaN(start) ? 0 : start,
    endSeconds: Number.isNaN(start) || time === undefined ? undefined : start + time / 1000,
  };
}

function contentOf(method: string, status: number, { content }: ReadEntry['response']): Buffer | undefined {
  if (content.text !== undefined) return Buffer.from(content.text, content.encoding === 'base64' ? 'base64' : 'utf8');
  const hasNone = method === 'HEAD' || status === 204 || status === 304 || (status > 300 && status < 400);
  return hasNone || content.size === 0 ? Buffer.alloc(0) : undefined;
}

function wireBytesOf({ bodySize, _transferSize: whole, headersSize }: ReadEntry['response']): number | undefined {
  if (bodySize !== undefined && bodySize >= 0) return bodySize;
  // Chromium gives the whole response only; its fields over HTTP/2 and 3 are a few dozen bytes.
  return whole !== undefined && whole > 0 ? Math.max(0, whole - Math.max(0, headersSize ?? 0)) : undefined;
}

function withoutFragment(url: string): string {
  return new URL(url).href.split('#')[0] as string;
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (thrown) {
    throw new LabError(ExitCode.Malformed, `${path} is not JSON: ${messageOf(thrown)}`);
  }
}
