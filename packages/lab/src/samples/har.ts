import type { BrowserSide, DevToolsRequest, TimelineEntry } from './sample.js';
import { withEntries } from '../trace/requests.js';
import { navigationStart } from '../trace/timeline.js';

/** One load as HAR 1.2. Keys that begin with an underscore are extensions, as the format allows. */
export interface Har {
  readonly log: {
    readonly version: '1.2';
    readonly creator: { readonly name: string; readonly version: string };
    readonly browser?: { readonly name: string; readonly version: string };
    readonly pages: readonly HarPage[];
    readonly entries: readonly HarEntry[];
  };
}

export interface HarPage {
  readonly startedDateTime: string;
  readonly id: string;
  readonly title: string;
  readonly pageTimings: { readonly onContentLoad: number; readonly onLoad: number };
}

export interface HarEntry {
  readonly pageref: string;
  readonly startedDateTime: string;
  /** Milliseconds: the sum of the timings that are not -1, without `ssl`. */
  readonly time: number;
  readonly request: {
    readonly method: string;
    readonly url: string;
    readonly httpVersion: string;
    readonly cookies: readonly never[];
    readonly headers: readonly never[];
    readonly queryString: readonly { readonly name: string; readonly value: string }[];
    readonly headersSize: -1;
    readonly bodySize: -1 | 0;
  };
  readonly response: {
    readonly status: number;
    readonly statusText: string;
    readonly httpVersion: string;
    readonly cookies: readonly never[];
    readonly headers: readonly never[];
    readonly content: { readonly size: number; readonly mimeType: string };
    readonly redirectURL: string;
    readonly headersSize: -1;
    readonly bodySize: number;
  };
  readonly cache: Readonly<Record<string, never>>;
  readonly timings: HarTimings;
  readonly serverIPAddress?: string;
  readonly connection?: string;
  readonly _resourceType: string;
  readonly _priority: string;
  /** Bytes on the connection, including header fields. */
  readonly _transferSize?: number;
  readonly _error?: string;
}

/** In milliseconds; -1 for a phase that did not occur. */
export interface HarTimings {
  readonly blocked: number;
  readonly dns: number;
  readonly connect: number;
  readonly ssl: number;
  readonly send: number;
  readonly wait: number;
  readonly receive: number;
}

/** HAR metadata besides the load itself. */
export interface HarFacts {
  readonly version: string;
  readonly chromium?: string;
  /** Start of the sample, for a load that did not record the wall clock at navigation start. */
  readonly startedAt: string;
  readonly title: string;
}

const PAGE = 'page_1';

/**
 * Returns a load as HAR. Header fields and bodies are not recorded, so their lists are empty and
 * their sizes -1.
 */
export function harOf(browser: BrowserSide, facts: HarFacts): Har {
  const { navigation, timeOriginMs } = browser;
  const unixMs = timeOriginMs ?? Date.parse(facts.startedAt);
  const dateAt = (ms: number): string => new Date(unixMs + ms).toISOString();
  const onTime = (ms: number | undefined): number =>
    ms === undefined || ms <= 0 ? -1 : rounded(ms);
  const page: HarPage = {
    startedDateTime: dateAt(0),
    id: PAGE,
    title: facts.title,
    pageTimings: {
      onContentLoad: onTime(navigation?.domContentLoadedEventEnd),
      onLoad: onTime(navigation?.loadEventEnd),
    },
  };
  return {
    log: {
      version: '1.2',
      creator: { name: 'pronghorn-lab', version: facts.version },
      ...(facts.chromium !== undefined && {
        browser: { name: 'Chromium', version: facts.chromium },
      }),
      pages: [page],
      entries: entriesOf(browser, dateAt),
    },
  };
}

function entriesOf(browser: BrowserSide, dateAt: (ms: number) => string): HarEntry[] {
  // Without a document there is no navigation start; the first request's start replaces it.
  const first =
    browser.requests.find(({ timing }) => timing !== undefined)?.timing?.requestTime ?? 0;
  const zero = navigationStart(browser) ?? first * 1000;
  return withEntries(browser).map(({ request, entry }) => {
    const { timing, startedMonotonicMs } = request;
    const started =
      timing?.requestTime === undefined ? startedMonotonicMs : timing.requestTime * 1000;
    const start = started === undefined ? (entry?.startTime ?? 0) : started - zero;
    const ended =
      request.endedMonotonicMs === undefined ? entry?.responseEnd : request.endedMonotonicMs - zero;
    const timings = timingsOf(
      request,
      ended === undefined || ended <= 0 ? undefined : ended - start,
    );
    return {
      ...factsOf(request, entry),
      startedDateTime: dateAt(start),
      time: total(timings),
      timings,
    };
  });
}

/**
 * Returns the phases of a request that ended `end` milliseconds after its start. They add up to its
 * whole time.
 */
function timingsOf({ timing }: DevToolsRequest, end: number | undefined): HarTimings {
  const none: HarTimings = {
    blocked: -1,
    dns: -1,
    connect: -1,
    ssl: -1,
    send: 0,
    wait: 0,
    receive: 0,
  };
  if (timing === undefined) return end === undefined ? none : { ...none, wait: rounded(end) };
  const at = (key: string): number => timing[key] ?? -1;
  const sendStart = Math.max(0, at('sendStart'));
  const sendEnd = Math.max(sendStart, at('sendEnd'));
  const firstByte = Math.max(
    sendEnd,
    at('receiveHeadersStart') >= 0 ? at('receiveHeadersStart') : at('receiveHeadersEnd'),
  );
  const dns = span(at('dnsStart'), Math.min(at('dnsEnd'), sendStart));
  // With early data a request leaves before the handshake has ended; HAR's phases are consecutive.
  const connect = span(at('connectStart'), Math.min(at('connectEnd'), sendStart));
  return {
    blocked: rounded(sendStart - Math.max(0, dns) - Math.max(0, connect)),
    dns,
    connect,
    ssl:
      connect < 0 ? -1 : Math.min(connect, span(at('sslStart'), Math.min(at('sslEnd'), sendStart))),
    send: rounded(sendEnd - sendStart),
    wait: rounded(firstByte - sendEnd),
    receive: rounded(Math.max(0, (end ?? firstByte) - firstByte)),
  };
}

function span(from: number, to: number): number {
  return from < 0 || to < from ? -1 : rounded(to - from);
}

function total({ blocked, dns, connect, send, wait, receive }: HarTimings): number {
  return rounded(
    [blocked, dns, connect, send, wait, receive].reduce((sum, each) => sum + Math.max(0, each), 0),
  );
}

function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

function factsOf(
  request: DevToolsRequest,
  entry: TimelineEntry | undefined,
): Omit<HarEntry, 'startedDateTime' | 'time' | 'timings'> {
  const {
    method = 'GET',
    protocol,
    remoteAddress,
    connectionId,
    encodedDataLength,
    error,
  } = request;
  const httpVersion = httpVersionOf(protocol);
  return {
    pageref: PAGE,
    request: {
      method,
      url: request.url,
      httpVersion,
      cookies: [],
      headers: [],
      queryString: queryOf(request.url),
      headersSize: -1,
      bodySize: method === 'GET' || method === 'HEAD' ? 0 : -1,
    },
    response: {
      status: request.status ?? 0,
      statusText: request.statusText ?? '',
      httpVersion,
      cookies: [],
      headers: [],
      content: {
        size: sizeIn(entry, 'decodedBodySize') ?? 0,
        mimeType: request.mimeType ?? 'x-unknown',
      },
      redirectURL: '',
      headersSize: -1,
      bodySize: sizeIn(entry, 'encodedBodySize') ?? -1,
    },
    cache: {},
    ...(remoteAddress !== undefined && { serverIPAddress: remoteAddress.replace(/:\d+$/, '') }),
    ...(connectionId !== undefined && connectionId > 0 && { connection: String(connectionId) }),
    _resourceType: request.type.toLowerCase(),
    _priority: request.priority,
    ...(encodedDataLength !== undefined && { _transferSize: encodedDataLength }),
    ...(error !== undefined && { _error: error }),
  };
}

/** Returns the version as browsers write it into HARs: `h3`, `h2`, and HTTP/1's own spelling. */
function httpVersionOf(protocol: string | undefined): string {
  if (protocol === undefined) return 'unknown';
  return /^http\//i.test(protocol) ? protocol.toUpperCase() : protocol;
}

function queryOf(url: string): { name: string; value: string }[] {
  const query = URL.canParse(url) ? [...new URL(url).searchParams] : [];
  return query.map(([name, value]) => ({ name, value }));
}

function sizeIn(
  entry: TimelineEntry | undefined,
  key: 'encodedBodySize' | 'decodedBodySize',
): number | undefined {
  const size = entry?.[key];
  return typeof size === 'number' ? size : undefined;
}
