import type { BrowserSide, DevToolsRequest, TimelineEntry } from '../samples/sample.js';

/**
 * A request with its times in milliseconds since navigation start; times that were not reached are
 * absent.
 */
export interface TimelineRequest {
  readonly url: string;
  readonly protocol?: string;
  readonly connectionId?: number;
  /** The name of the flow that carried it, if known. */
  readonly connection?: string;
  readonly start: number;
  readonly connectStart?: number;
  readonly connectEnd?: number;
  readonly sent?: number;
  readonly responseStart?: number;
  /** The end of the response. */
  readonly end?: number;
  readonly bytes?: number;
  readonly failed: boolean;
}

/**
 * Returns the requests of a load by the developer tools' times, which use CLOCK_MONOTONIC. If a
 * request's end was not recorded, the page's is used.
 */
export function requestsOf(browser: BrowserSide, zero: number): TimelineRequest[] {
  return withEntries(browser).flatMap(({ request, entry }) => {
    const { timing, startedMonotonicMs, endedMonotonicMs } = request;
    const started =
      timing?.requestTime === undefined ? startedMonotonicMs : timing.requestTime * 1000;
    const start = started === undefined ? entry?.startTime : started - zero;
    if (start === undefined) return [];
    const time = (key: string): number | undefined => {
      const offset = timing?.[key];
      return offset === undefined || offset < 0 ? undefined : start + offset;
    };
    const ended = endedMonotonicMs === undefined ? entry?.responseEnd : endedMonotonicMs - zero;
    return {
      ...facts(request),
      start,
      ...optional('connectStart', time('connectStart')),
      ...optional('connectEnd', time('connectEnd')),
      ...optional('sent', time('sendEnd')),
      ...optional('responseStart', time('receiveHeadersStart') ?? time('receiveHeadersEnd')),
      ...optional('end', ended !== undefined && ended > 0 ? ended : undefined),
    };
  });
}

/** Pairs each request with the page's entry for it, if there is one. */
export function withEntries(
  browser: BrowserSide,
): { readonly request: DevToolsRequest; readonly entry: TimelineEntry | undefined }[] {
  const entries = entriesByUrl(browser);
  return browser.requests.map((request) => ({ request, entry: entries.get(request.url)?.shift() }));
}

function facts({
  url,
  protocol,
  connectionId,
  encodedDataLength,
  finished,
  error,
}: DevToolsRequest): Pick<
  TimelineRequest,
  'url' | 'protocol' | 'connectionId' | 'bytes' | 'failed'
> {
  return {
    url,
    ...(protocol !== undefined && { protocol }),
    // Zero means none: a response from a cache.
    ...(connectionId !== undefined && connectionId > 0 && { connectionId }),
    ...optional('bytes', encodedDataLength),
    failed: !finished || error !== undefined,
  };
}

/** Groups the page's entries by URL in the order of their start; each request takes one. */
function entriesByUrl({ navigation, resources }: BrowserSide): Map<string, TimelineEntry[]> {
  const all = [...(navigation === undefined ? [] : [navigation]), ...resources];
  const byUrl = new Map<string, TimelineEntry[]>();
  for (const entry of all.sort((a, b) => a.startTime - b.startTime)) {
    const those = byUrl.get(entry.name) ?? [];
    those.push(entry);
    byUrl.set(entry.name, those);
  }
  return byUrl;
}

function optional<K extends string>(key: K, value: number | undefined): Partial<Record<K, number>> {
  return value === undefined ? {} : ({ [key]: value } as Record<K, number>);
}
