import type { DevToolsRequest } from '../sample.js';

/** One request of a recorded page, with the answer that it got then and that a replay gives again. */
export interface RecordedRequest {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  /**
   * When it began: `before-load` if before the load event began, so that a load is complete only with it; `after-load` if later,
   * as polling and beacons do, so that no load is judged by it; `unknown` if the recording does not say when the load event was.
   */
  readonly when: 'before-load' | 'after-load' | 'unknown';
}

/** What a load has to fetch to be complete. */
export type Expected =
  /** A page that is not ours: nobody knows its requests, nor which of them may fail. Its document has to come. */
  | { readonly kind: 'document' }
  /** So many requests, all answered with success, before the load event. */
  | { readonly kind: 'count'; readonly requests: number }
  | {
      readonly kind: 'recording';
      readonly requests: readonly RecordedRequest[];
      /** How the document was answered. */
      readonly documentStatus: number;
      /** From the first request to the load event; 0 where that is not known. */
      readonly loadSeconds: number;
    };

/** How far a load has come with what it has to fetch. */
export interface Completeness {
  readonly answered: number;
  readonly of: number;
  /** The first one that went wrong, or that has no answer yet. */
  readonly bad?: DevToolsRequest;
  /** What else is wrong. */
  readonly problem?: string;
  /** Requests on their way that count. */
  readonly pending: boolean;
  /** A request that the page may still make. */
  readonly missing: boolean;
}

/**
 * Compares the requests of a load with what it has to fetch. `loadEventMs` is when its load event began, on the clock of the
 * requests' `startedMonotonicMs`; undefined if there was none. The browser's own request for the page's icon never counts.
 */
export function completenessOf(
  all: readonly DevToolsRequest[],
  expected: Expected,
  loadEventMs: number | undefined,
): Completeness {
  const requests = all.filter(({ icon }) => icon !== true);
  const judged = judgedOf(requests, expected, loadEventMs);
  switch (expected.kind) {
    case 'document':
      return verdict(judged, 1);
    case 'count': {
      const seen = verdict(judged, expected.requests);
      if (judged.length === expected.requests) return seen;
      const problem = `the page made ${judged.length} requests, not ${expected.requests}`;
      return { ...seen, problem, missing: judged.length < expected.requests };
    }
    case 'recording':
      return verdict(judged, judged.length);
  }
}

/** The URLs that a load waits for until they have come, however long after the load event that is. */
export function awaitedUrls(
  all: readonly DevToolsRequest[],
  expected: Expected,
  loadEventMs: number | undefined,
): ReadonlySet<string> {
  const requests = all.filter(({ icon }) => icon !== true);
  const judged = judgedOf(requests, expected, loadEventMs);
  return new Set(judged.flatMap(({ found }) => found.map(({ url }) => url)));
}

function judgedOf(
  requests: readonly DevToolsRequest[],
  expected: Expected,
  loadEventMs: number | undefined,
): readonly Found[] {
  const isBeforeLoad = beganBefore(loadEventMs);
  switch (expected.kind) {
    case 'document': {
      const document = documentOf(requests, loadEventMs);
      return document === undefined ? [] : [{ found: [document], isAnswer: isAnswered }];
    }
    case 'count':
      return requests.filter(isBeforeLoad).map((request) => ({ found: [request], isAnswer: isAnswered }));
    case 'recording':
      return judgedOfRecording(requests, expected.requests, isBeforeLoad);
  }
}

/** The document that is loaded in the end: the last of its redirects. */
export function documentOf(
  requests: readonly DevToolsRequest[],
  loadEventMs: number | undefined,
): DevToolsRequest | undefined {
  const before = requests.filter(beganBefore(loadEventMs));
  return before.findLast(({ mainDocument }) => mainDocument === true) ?? requests[0];
}

/** What has no time of its own, as in samples of earlier versions, was there from the start. */
function beganBefore(loadEventMs: number | undefined): (request: DevToolsRequest) => boolean {
  return ({ startedMonotonicMs: started }) =>
    loadEventMs === undefined || started === undefined || started <= loadEventMs;
}

/** Whether a response came whole, with a status of success. */
export function isAnswered(request: DevToolsRequest): boolean {
  return isWhole(request) && (request.status ?? 0) < 400;
}

/** Whether a request got the answer that a recording has: the same failure, or any success. */
export function isAnsweredAs(status: number): (request: DevToolsRequest) => boolean {
  return (request) => isAnswered(request) || (isWhole(request) && request.status === status);
}

function isWhole({ finished, error, status }: DevToolsRequest): boolean {
  return finished && error === undefined && status !== undefined;
}

function hasEnded({ finished, error }: DevToolsRequest): boolean {
  return finished || error !== undefined;
}

/** The requests of a load that stand for one that counts; one good answer is enough. */
interface Found {
  readonly found: readonly DevToolsRequest[];
  readonly isAnswer: (request: DevToolsRequest) => boolean;
  /** Of a recorded one that was not found. */
  readonly missing?: string;
}

function verdict(all: readonly Found[], of: number): Completeness {
  const open = all.filter(({ found, isAnswer }) => !found.some(isAnswer));
  const bad = open.flatMap(({ found }) => found)[0];
  const missing = open.find((each) => each.missing !== undefined)?.missing;
  return {
    answered: all.length - open.length,
    of,
    ...(bad !== undefined && { bad }),
    ...(missing !== undefined && { problem: `${missing} was not requested` }),
    pending: open.some(({ found }) => found.some((request) => !hasEnded(request))),
    missing: missing !== undefined,
  };
}

/**
 * A page may ask for something else each time: by the time, by chance, or by what the screen is. A replay answers another query
 * of a known path, and what it does not know with 404. So a recorded request is found in the same request, else in one of the
 * same path with another query, else in an unknown one to the same host.
 */
function judgedOfRecording(
  requests: readonly DevToolsRequest[],
  recorded: readonly RecordedRequest[],
  isBeforeLoad: (request: DevToolsRequest) => boolean,
): Found[] {
  const known = new Set(recorded.map(({ method, url }) => keyOf(method, url, 'query')));
  const knownPaths = new Set(recorded.map(({ method, url }) => keyOf(method, url, 'path')));
  const exact = new Map<string, DevToolsRequest[]>();
  const byPath = new Map<string, DevToolsRequest[]>();
  const byHost = new Map<string, DevToolsRequest[]>();
  for (const request of requests) {
    const { method = 'GET', url } = request;
    const [query, path, host] = [keyOf(method, url, 'query'), keyOf(method, url, 'path'), keyOf(method, url, 'host')];
    if (known.has(query)) add(exact, query, request);
    else if (knownPaths.has(path)) add(byPath, path, request);
    else add(byHost, host, request);
  }
  const judged = new Map<string, Found>();
  for (const { method, url, status, when } of recorded) {
    if (when === 'after-load') continue;
    const key = keyOf(method, url, 'query');
    const found = exact.get(key) ?? byPath.get(keyOf(method, url, 'path')) ?? [];
    if (when === 'unknown') {
      const before = found.filter(isBeforeLoad);
      if (before.length > 0) judged.set(key, { found: before, isAnswer: isAnsweredAs(status) });
      continue;
    }
    const unknown = (): DevToolsRequest[] => byHost.get(keyOf(method, url, 'host'))?.filter(isUnknownToReplay) ?? [];
    const isAnswer = isAnsweredAs(status);
    if (found.length > 0) judged.set(key, { found, isAnswer });
    else if (unknown().length > 0) judged.set(key, { found: unknown(), isAnswer: isUnknownToReplay });
    else judged.set(key, { found, isAnswer, missing: url });
  }
  return [...judged.values()];
}

/** Whether a request got what a replay says to one that it does not know. */
function isUnknownToReplay(request: DevToolsRequest): boolean {
  return isWhole(request) && request.status === 404;
}

function add<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}

/** As a replay tells requests apart: it has all schemes and ports of a host, and an arm in clear asks for http://. */
function keyOf(method: string, url: string, until: 'host' | 'path' | 'query'): string {
  const { hostname, pathname, search } = new URL(url);
  const parts = { host: hostname, path: hostname + pathname, query: hostname + pathname + search };
  return `${method} ${parts[until]}`;
}
