import { z } from 'zod';
import { ExitCode, LabError, messageOf } from '../io/errors.js';
import { readText } from '../io/toml-file.js';
import { iconsOf, titleOf } from './html-document.js';
import type { Capture, Exchange, LoadedDocument, Note } from './exchange.js';
import { originOf } from './recording.js';
import { kindOf, thinkTimes, type ThinkTime, type Wait } from './think-time.js';

/** HAR files of some browsers have null where others omit a key. */
const maybeNumber = z
  .number()
  .nullish()
  .transform((value) => value ?? undefined);
const maybeText = z
  .string()
  .nullish()
  .transform((value) => value ?? undefined);

const nameValues = z.array(z.object({ name: z.string(), value: z.string() }));

const harFile = z.object({
  log: z.object({
    creator: z.object({ name: z.string(), version: z.string().optional() }).optional(),
    browser: z.object({ name: z.string(), version: z.string().optional() }).optional(),
    pages: z
      .array(
        z.object({
          id: z.string(),
          startedDateTime: maybeText,
          pageTimings: z.object({ onLoad: maybeNumber }).nullish(),
        }),
      )
      .nullish(),
    entries: z
      .array(
        z.object({
          pageref: maybeText,
          startedDateTime: z.string(),
          time: maybeNumber,
          _resourceType: maybeText,
          timings: z
            .object({
              blocked: maybeNumber,
              dns: maybeNumber,
              connect: maybeNumber,
              ssl: maybeNumber,
              send: maybeNumber,
              wait: maybeNumber,
              receive: maybeNumber,
            })
            .nullish(),
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
              mimeType: maybeText,
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

type ReadPage = NonNullable<z.infer<typeof harFile>['log']['pages']>[number];

/**
 * Reads a HAR file that was exported with content. If it has several pages, such as the runs of a
 * test, the first is used; a replay loads its document.
 */
export function readHar(path: string): Capture {
  const parsed = harFile.safeParse(parseJson(readText(path, 'the HAR file'), path));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new LabError(
      ExitCode.Malformed,
      `${path} is not a valid HAR file: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`,
    );
  }
  const { entries, pages, browser, creator } = parsed.data.log;
  const ofWeb = entries.filter(isOfWeb);
  const page = pages?.find(({ id }) => ofWeb.some(({ pageref }) => pageref === id));
  const web = inOrder(
    ofWeb.filter(
      ({ pageref }) => page === undefined || pageref === undefined || pageref === page.id,
    ),
  );
  const start = startOf(web);
  if (start === undefined)
    throw new LabError(ExitCode.Malformed, `${path} has no http or https request`);
  if (web.every(({ response }) => response.content.text === undefined)) {
    throw new LabError(
      ExitCode.Malformed,
      `${path} has no response content`,
      'export it with content ("Save all as HAR with content"), or capture the URL itself',
    );
  }
  const began = Date.parse(start.startedDateTime);
  const plain = web.map((entry) => exchangeOf(entry, began));
  const { document, icons, navigation } = documentOf(start, plain.filter(isExchange));
  const think = thinkTimes(
    plain.map((each, at) => waitOf(web[at] as ReadEntry, navigation.has(each))),
  );
  const read = plain.map((each, at) => withThinkTime(each, think[at]));
  const exchanges = read.filter(isExchange);
  const loadSeconds = loadSecondsOf(page, began);
  const made = browser ?? creator;
  const others = ofWeb.length - web.length;
  return {
    url: withoutFragment(start.request.url),
    capturedAt: Number.isNaN(began) ? undefined : new Date(began).toISOString(),
    browser: made === undefined ? undefined : `${made.name} ${made.version ?? ''}`.trim(),
    ...(document !== undefined && { document }),
    ...(loadSeconds !== undefined && { loadSeconds }),
    requests: web.length,
    exchanges: exchanges.map((each) => (icons.has(each.url) ? { ...each, icon: true } : each)),
    notes: [
      ...(others === 0
        ? []
        : [noteOf(start, `${others} requests of other pages in the HAR file are skipped`)]),
      ...(loadSeconds === undefined ? [noteOf(start, NO_LOAD_EVENT)] : []),
      ...read.filter((each): each is Note => 'reason' in each),
    ],
  };
}

const NO_LOAD_EVENT =
  'the HAR file has no time of the load event; a load counts the requests before its own load event';

function noteOf({ request: { method, url } }: ReadEntry, reason: string): Note {
  return { method, url: withoutFragment(url), reason };
}

/** Returns whether an entry is a request of the page; a proxy also lists its tunnels. */
function isOfWeb({ request: { method, url } }: ReadEntry): boolean {
  return method.toUpperCase() !== 'CONNECT' && /^https?:/.test(url) && URL.canParse(url);
}

/** Sorts the entries by start time, if all have one. */
function inOrder(entries: readonly ReadEntry[]): ReadEntry[] {
  const began = ({ startedDateTime }: ReadEntry): number => Date.parse(startedDateTime);
  if (entries.some((entry) => Number.isNaN(began(entry)))) return [...entries];
  return [...entries].sort((one, other) => began(one) - began(other));
}

/**
 * Returns the request of the document or the first redirect to it. A proxy may have seen others
 * before.
 */
function startOf(entries: readonly ReadEntry[]): ReadEntry | undefined {
  const isStart = ({ request: { method }, response }: ReadEntry): boolean =>
    method === 'GET' && (isHtml(response) || locationOf(response) !== undefined);
  return entries.find(isStart) ?? entries[0];
}

function isExchange(read: Exchange | Note): read is Exchange {
  return 'status' in read;
}

function isHtml({ headers, content }: ReadEntry['response']): boolean {
  return /html/i.test(field(headers, 'content-type') ?? content.mimeType ?? '');
}

function locationOf({ status, headers }: ReadEntry['response']): string | undefined {
  return status >= 300 && status < 400 ? field(headers, 'location') : undefined;
}

function field(
  headers: readonly { name: string; value: string }[],
  wanted: string,
): string | undefined {
  return headers.find(({ name }) => name.toLowerCase() === wanted)?.value;
}

/**
 * Returns what the first request led to, with the redirects before it, and the icons that the
 * document names, which browsers request at arbitrary times.
 */
function documentOf(
  start: ReadEntry,
  exchanges: readonly Exchange[],
): {
  document: LoadedDocument | undefined;
  icons: ReadonlySet<string>;
  navigation: ReadonlySet<Exchange | Note>;
} {
  const navigation = new Set<Exchange | Note>();
  const passed = new Set<string>();
  let url = withoutFragment(start.request.url);
  for (;;) {
    const found = exchanges.find((each) => each.url === url && !passed.has(url));
    if (found !== undefined) navigation.add(found);
    const location = found?.headers.find(([name]) => name === 'location')?.[1];
    const isRedirect = found !== undefined && found.status >= 300 && found.status < 400;
    if (!isRedirect || location === undefined || !URL.canParse(location, url)) {
      const html = found?.body?.toString('utf8') ?? '';
      const title = titleOf(html);
      const document = found && {
        url,
        status: found.status,
        ...(title !== undefined && { title }),
      };
      return { document, icons: iconsOf(html, url, exchanges), navigation };
    }
    passed.add(url);
    url = withoutFragment(new URL(location, url).href);
  }
}

/**
 * Counts from the document's request, as a browser does, and not from a tool's start of the page.
 */
function loadSecondsOf(page: ReadPage | undefined, began: number): number | undefined {
  const onLoad = page?.pageTimings?.onLoad;
  if (onLoad === undefined || onLoad <= 0) return undefined;
  const start = Date.parse(page?.startedDateTime ?? '');
  return ((Number.isNaN(start) || Number.isNaN(began) ? 0 : start - began) + onLoad) / 1000;
}

/**
 * Converts HAR times, which are consecutive durations in milliseconds, -1 for a phase that did not
 * occur; the TLS time is part of the connection time.
 */
function waitOf(
  { request, response, startedDateTime, timings }: ReadEntry,
  mainDocument: boolean,
): Wait {
  const { wait, blocked, dns, connect, ssl, send, receive } = timings ?? {};
  const took = (milliseconds: number | undefined): number => Math.max(0, milliseconds ?? 0);
  const sent = Date.parse(startedDateTime) + took(blocked) + took(dns) + took(connect) + took(send);
  return {
    origin: originOf(request.url),
    kind: kindOf(field(response.headers, 'content-type') ?? response.content.mimeType),
    mainDocument,
    connectMs: connect === undefined || connect < 0 ? undefined : connect - took(ssl),
    sentMs: Number.isNaN(sent) ? undefined : sent,
    waitMs: wait,
    endMs: Number.isNaN(sent) ? undefined : sent + took(wait) + took(receive),
    bytes: wireBytesOf(response),
  };
}

function withThinkTime(read: Exchange | Note, think: ThinkTime | undefined): Exchange | Note {
  return 'reason' in read || think === undefined ? read : { ...read, think };
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

function contentOf(
  method: string,
  status: number,
  { content }: ReadEntry['response'],
): Buffer | undefined {
  if (content.text !== undefined)
    return Buffer.from(content.text, content.encoding === 'base64' ? 'base64' : 'utf8');
  const hasNone =
    method === 'HEAD' || status === 204 || status === 304 || (status > 300 && status < 400);
  return hasNone || content.size === 0 ? Buffer.alloc(0) : undefined;
}

function wireBytesOf({
  bodySize,
  _transferSize: whole,
  headersSize,
}: ReadEntry['response']): number | undefined {
  if (bodySize !== undefined && bodySize >= 0) return bodySize;
  // Chromium reports only the size of the whole response; its fields over HTTP/2 and 3 take a few
  // dozen bytes.
  return whole !== undefined && whole > 0
    ? Math.max(0, whole - Math.max(0, headersSize ?? 0))
    : undefined;
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
