import type { DevToolsRequest } from '../samples/sample.js';

/** One request of a recorded page, with the response that a replay gives. */
export interface RecordedRequest {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  /**
   * When it began: `before-load` if before the load event began, so a complete load needs it;
   * `after-load` if later, as with polling and beacons, so it does not count; `unknown` if the
   * recording does not say when the load event was.
   */
  readonly when: 'before-load' | 'after-load' | 'unknown';
}

/** What a load has to fetch to be complete. */
export type Expected =
  /**
   * An external page: its requests are unknown, and so is which may fail. Its document has to be
   * received.
   */
  | { readonly kind: 'document' }
  /** A number of requests, all answered with success, before the load event. */
  | { readonly kind: 'count'; readonly requests: number }
  | {
      readonly kind: 'recording';
      readonly requests: readonly RecordedRequest[];
      /** Status of the document's response. */
      readonly documentStatus: number;
      /** Time from the first request to the load event; 0 if unknown. */
      readonly loadSeconds: number;
    };

/** A load's progress towards completeness. */
export interface Completeness {
  readonly answered: number;
  readonly of: number;
  /** The first request that failed or has no response yet. */
  readonly bad?: DevToolsRequest;
  /** Any other problem. */
  readonly problem?: string;
  /** Whether requests that count are in flight. */
  readonly pending: boolean;
  /** Whether the page may still make a request that counts. */
  readonly missing: boolean;
}

/**
 * Compares the requests of a load with what it has to fetch. `loadEventMs` is when its load event
 * began, on the clock of the requests' `startedMonotonicMs`; undefined without one. The browser's
 * own request for the page's icon never counts.
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

/** Returns the URLs that a load waits for, however long after the load event they come. */
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
      return requests
        .filter(isBeforeLoad)
        .map((request) => ({ found: [request], isAnswer: isAnswered }));
    case 'recording':
      return judgedOfRecording(requests, expected.requests, isBeforeLoad);
  }
}

/** Returns the final document, after all redirects. */
export function documentOf(
  requests: readonly DevToolsRequest[],
  loadEventMs: number | undefined,
): DevToolsRequest | undefined {
  const before = requests.filter(beganBefore(loadEventMs));
  return before.findLast(({ mainDocument }) => mainDocument === true) ?? requests[0];
}

/**
 * Requests without a start time, as in samples of earlier versions, count as begun before the load
 * event.
 */
function beganBefore(loadEventMs: number | undefined): (request: DevToolsRequest) => boolean {
  return ({ startedMonotonicMs: started }) =>
    loadEventMs === undefined || started === undefined || started <= loadEventMs;
}

/** Returns whether a response was complete and had a status of success. */
export function isAnswered(request: DevToolsRequest): boolean {
  return isWhole(request) && (request.status ?? 0) < 400;
}

/** Returns whether a request got the recorded answer: the same failure, or any success. */
export function isAnsweredAs(status: number): (request: DevToolsRequest) => boolean {
  return (request) => isAnswered(request) || (isWhole(request) && request.status === status);
}

function isWhole({ finished, error, status }: DevToolsRequest): boolean {
  return finished && error === undefined && status !== undefined;
}

function hasEnded({ finished, error }: DevToolsRequest): boolean {
  return finished || error !== undefined;
}

/** The requests of a load that match one that counts; one good answer is enough. */
interface Found {
  readonly found: readonly DevToolsRequest[];
  readonly isAnswer: (request: DevToolsRequest) => boolean;
  /** Description of a recorded request that was not found. */
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
 * Finds the recorded requests in a load. A page may make different requests each time, depending on
 * time, chance or screen. A replay answers another query of a known path, and unknown paths with
 * 404. So a recorded request matches the same request, else one of the same path with another
 * query, else an unknown one to the same host.
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
    const [query, path, host] = [
      keyOf(method, url, 'query'),
      keyOf(method, url, 'path'),
      keyOf(method, url, 'host'),
    ];
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
    const unknown = (): DevToolsRequest[] =>
      byHost.get(keyOf(method, url, 'host'))?.filter(isUnknownToReplay) ?? [];
    const isAnswer = isAnsweredAs(status);
    if (found.length > 0) judged.set(key, { found, isAnswer });
    else if (unknown().length > 0)
      judged.set(key, { found: unknown(), isAnswer: isUnknownToReplay });
    else judged.set(key, { found, isAnswer, missing: url });
  }
  return [...judged.values()];
}

/** Returns whether a request got the replay's response for unknown requests. */
function isUnknownToReplay(request: DevToolsRequest): boolean {
  return isWhole(request) && request.status === 404;
}

function add<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}

/**
 * Returns the key by which a replay tells requests apart: it serves all schemes and ports of a
 * host, and an arm without TLS requests http://.
 */
function keyOf(method: string, url: string, until: 'host' | 'path' | 'query'): string {
  const { hostname, pathname, search } = new URL(url);
  const parts = { host: hostname, path: hostname + pathname, query: hostname + pathname + search };
  return `${method} ${parts[until]}`;
}
