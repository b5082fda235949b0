import type { DevToolsRequest, TimelineEntry } from '../sample.js';
import type { TimedBrowserSide } from './timeline.js';

/** A request with its times in milliseconds since navigation start; those that were not reached are left out. */
export interface TimelineRequest {
  readonly url: string;
  readonly protocol?: string;
  readonly connectionId?: number;
  /** The name of the flow that carried it, when that is known. */
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

/** The requests of a load, by the developer tools' times, which count in CLOCK_MONOTONIC; the ends are the page's. */
export function requestsOf(browser: TimedBrowserSide, zero: number): TimelineRequest[] {
  const entries = entriesByUrl(browser);
  return browser.requests.flatMap((request) => {
    const { timing } = request;
    const entry = entries.get(request.url)?.shift();
    const requestTime = timing?.requestTime;
    const start = requestTime === undefined ? entry?.startTime : requestTime * 1000 - zero;
    if (start === undefined) return [];
    const time = (key: string): number | undefined => {
      const offset = timing?.[key];
      return offset === undefined || offset < 0 ? undefined : start + offset;
    };
    return {
      ...facts(request),
      start,
      ...optional('connectStart', time('connectStart')),
      ...optional('connectEnd', time('connectEnd')),
      ...optional('sent', time('sendEnd')),
      ...optional('responseStart', time('receiveHeadersStart') ?? time('receiveHeadersEnd')),
      ...optional('end', entry === undefined || entry.responseEnd <= 0 ? undefined : entry.responseEnd),
    };
  });
}

function facts({
  url,
  protocol,
  connectionId,
  encodedDataLength,
  finished,
  error,
}: DevToolsRequest): Pick<TimelineRequest, 'url' | 'protocol' | 'connectionId' | 'bytes' | 'failed'> {
  return {
    url,
    ...(protocol !== undefined && { protocol }),
    // Zero stands for none: a response from a cache.
    ...(connectionId !== undefined && connectionId > 0 && { connectionId }),
    ...optional('bytes', encodedDataLength),
    failed: !finished || error !== undefined,
  };
}

/** The page's entries of each URL, in the order of their start, to be taken one for each request. */
function entriesByUrl({ navigation, resources }: TimedBrowserSide): Map<string, TimelineEntry[]> {
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
