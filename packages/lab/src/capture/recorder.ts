import type { CDPSession, Protocol as DevTools } from 'puppeteer-core';
import { messageOf } from '../io/errors.js';
import { isIconRequest } from '../load/page-requests.js';
import type { Exchange, Note } from './exchange.js';
import { originOf } from './recording.js';
import { kindOf, thinkTimes, type Wait } from './think-time.js';

/** A message of the developer tools. */
export interface Message {
  readonly method: string;
  readonly params: object;
}

/**
 * Bytes that the browser may buffer for all bodies, and for one, until they are fetched; beyond
 * that it discards the oldest.
 */
const ALL_BODIES_BYTES = 1 << 30;
const BODY_BYTES = 512 << 20;

const PAGE_EVENTS = [
  'Page.frameStartedLoading',
  'Page.frameAttached',
  'Page.domContentEventFired',
  'Page.loadEventFired',
] as const;
const NETWORK_EVENTS = [
  'Network.requestWillBeSent',
  'Network.requestWillBeSentExtraInfo',
  'Network.requestServedFromCache',
  'Network.responseReceived',
  'Network.responseReceivedExtraInfo',
  'Network.dataReceived',
  'Network.loadingFinished',
  'Network.loadingFailed',
  'Network.resourceChangedPriority',
] as const;

type Response = DevTools.Network.Response;
type ResourceTiming = DevTools.Network.ResourceTiming;
type RawHeaders = DevTools.Network.Headers;

/** One request in a chain of redirects, which share an ID. */
interface Hop {
  readonly method: string;
  readonly url: string;
  readonly start: number;
  readonly type: string | undefined;
  readonly icon: boolean;
  /** Whether this is the main frame's document. */
  readonly isMainDocument: boolean;
  response?: Response;
  /** Set if the browser's cache answered, so nothing crossed the network. */
  cached?: true;
  /** Time of the last data received. */
  dataAt?: number;
  hasRawHeaders?: boolean;
  end?: number;
  dataBytes: number;
  wireBytes?: number;
  body?: Promise<Buffer | string>;
  failure?: string;
}

interface Chain {
  readonly hops: Hop[];
  /** Header fields as on the wire; they come in separate messages, in the order of the hops. */
  readonly rawHeaders: RawHeaders[];
}

/** Collects all requests of a page, its frames and its workers, with their response bodies. */
export class Recorder {
  readonly #chains = new Map<string, Chain>();
  /** What a replay lacks, with its description by URL. */
  readonly #leftOut = new Map<string, string>();
  readonly #messages: Message[] = [];
  #first: number | undefined;
  #mainFrame: string | undefined;
  #load: number | undefined;

  /**
   * Starts listening to a target of the browser and to the targets that it starts. Call before the
   * navigation.
   */
  async attach(session: CDPSession): Promise<void> {
    this.#listen(session);
    session.on('sessionattached', (child: CDPSession) => {
      // The target waits until it is told to run. One that has ended meanwhile has nothing to
      // report.
      this.attach(child)
        .then(() => child.send('Runtime.runIfWaitingForDebugger'))
        .catch(() => undefined);
    });
    await session.send('Network.enable', {
      maxTotalBufferSize: ALL_BODIES_BYTES,
      maxResourceBufferSize: BODY_BYTES,
    });
    await session.send('Target.setAutoAttach', {
      autoAttach: true,
      waitForDebuggerOnStart: true,
      flatten: true,
    });
  }

  /** Returns the messages from which the HAR file is made. */
  messages(): readonly Message[] {
    return this.#messages;
  }

  /** Returns whether all requests have ended. */
  settled(): boolean {
    return this.#hops().every(({ end, failure }) => end !== undefined || failure !== undefined);
  }

  /** Returns why no document was received; undefined if one was. */
  documentFailure(): string | undefined {
    const document = this.#hops().findLast(({ isMainDocument }) => isMainDocument);
    const status = document?.response?.status ?? 0;
    return document?.failure === undefined
      ? undefined
      : status >= 400
        ? `status ${status}`
        : document.failure;
  }

  /** Notes something whose requests cannot be observed and which a replay lacks. */
  leaveOut(url: string, what: string): void {
    this.#leftOut.set(url, what);
  }

  /** Sets the start of the load event, on the developer tools' clock in seconds. */
  loaded(at: number): void {
    this.#load = at;
  }

  /** Start of the load event in seconds since the first request. */
  get loadSeconds(): number | undefined {
    return this.#load === undefined || this.#first === undefined
      ? undefined
      : this.#load - this.#first;
  }

  /** Returns the capture so far, in the order in which requests began. */
  async result(): Promise<{ requests: number; exchanges: Exchange[]; notes: Note[] }> {
    const exchanges: Exchange[] = [];
    const notes: Note[] = [...this.#leftOut].map(([url, what]) => ({
      method: 'GET',
      url,
      reason: `${what}, which a replay lacks`,
    }));
    const hops = this.#hopsWithHeaders();
    const think = thinkTimes(hops.map(([hop]) => waitOf(hop)));
    for (const [at, [hop, raw]] of hops.entries()) {
      const own = think[at];
      const { method, url, response, failure, end } = hop;
      if (hop.isMainDocument && this.#load !== undefined && hop.start > this.#load) {
        notes.push({
          method,
          url,
          reason: 'the page navigated to it after its load event; loads do not wait for it',
        });
      }
      if (end === undefined && this.#leftOut.has(url)) continue;
      if (response === undefined || failure !== undefined || end === undefined) {
        notes.push({
          method,
          url,
          reason: `${failure ?? 'did not end before the capture did'}; a replay answers 404`,
        });
        continue;
      }
      const body = await contentOf(hop);
      if (typeof body === 'string') notes.push({ method, url, reason: body });
      exchanges.push({
        method,
        url,
        status: response.status,
        headers: fields(raw ?? response.headers),
        body: typeof body === 'string' ? undefined : body,
        wireBytes: hop.wireBytes,
        protocol: response.protocol,
        type: hop.type,
        startSeconds: hop.start - (this.#first ?? hop.start),
        endSeconds: end - (this.#first ?? end),
        ...(own !== undefined && { think: own }),
        ...(hop.icon && { icon: true }),
      });
    }
    return { requests: this.#hops().length, exchanges, notes };
  }

  #listen(session: CDPSession): void {
    for (const method of [...PAGE_EVENTS, ...NETWORK_EVENTS]) {
      session.on(method, (params) => {
        // Larger than all others together, and not part of a HAR file.
        if (method !== 'Network.dataReceived') this.#messages.push({ method, params });
      });
    }
    session.on('Network.requestWillBeSent', (event) => {
      this.#onRequest(event);
    });
    session.on('Network.responseReceivedExtraInfo', ({ requestId, headers }) => {
      this.#chain(requestId).rawHeaders.push(headers);
    });
    session.on('Network.responseReceived', ({ requestId, response, hasExtraInfo }) => {
      const hop = this.#last(requestId);
      if (hop) Object.assign(hop, { response, hasRawHeaders: hasExtraInfo });
    });
    session.on('Network.requestServedFromCache', ({ requestId }) => {
      const hop = this.#last(requestId);
      if (hop) hop.cached = true;
    });
    session.on('Network.dataReceived', ({ requestId, encodedDataLength, timestamp }) => {
      const hop = this.#last(requestId);
      if (hop)
        Object.assign(hop, { dataAt: timestamp, dataBytes: hop.dataBytes + encodedDataLength });
    });
    session.on('Network.loadingFinished', ({ requestId, timestamp, encodedDataLength }) => {
      const hop = this.#last(requestId);
      if (!hop) return;
      hop.end = timestamp;
      hop.wireBytes =
        hop.dataBytes || Math.max(0, encodedDataLength - (hop.response?.encodedDataLength ?? 0));
      hop.body = fetchBody(session, requestId);
    });
    session.on('Network.loadingFailed', ({ requestId, errorText, blockedReason }) => {
      const hop = this.#last(requestId);
      if (hop) hop.failure = blockedReason ?? errorText;
    });
    session.on('Network.webSocketCreated', ({ url }) => {
      this.leaveOut(url, 'a WebSocket');
    });
    session.on('Network.webTransportCreated', ({ url }) => {
      this.leaveOut(url, 'a WebTransport session');
    });
  }

  #onRequest(event: DevTools.Network.RequestWillBeSentEvent): void {
    const { requestId, request, timestamp, type, redirectResponse, redirectHasExtraInfo } = event;
    const before = this.#last(requestId);
    if (redirectResponse !== undefined && before !== undefined) {
      Object.assign(before, {
        response: redirectResponse,
        hasRawHeaders: redirectHasExtraInfo,
        end: timestamp,
      });
      // Browsers discard the body of a redirect and do not expose it.
      before.body = Promise.resolve(Buffer.alloc(0));
    }
    this.#first ??= timestamp;
    this.#mainFrame ??= event.frameId;
    // A fragment is never sent.
    this.#chain(requestId).hops.push({
      method: request.method,
      url: request.url,
      start: timestamp,
      type,
      icon: isIconRequest(event),
      isMainDocument:
        type === 'Document' && event.frameId !== undefined && event.frameId === this.#mainFrame,
      dataBytes: 0,
    });
  }

  #chain(requestId: string): Chain {
    const known = this.#chains.get(requestId);
    if (known !== undefined) return known;
    const chain: Chain = { hops: [], rawHeaders: [] };
    this.#chains.set(requestId, chain);
    return chain;
  }

  #last(requestId: string): Hop | undefined {
    return this.#chains.get(requestId)?.hops.at(-1);
  }

  #hops(): Hop[] {
    return this.#hopsWithHeaders().map(([hop]) => hop);
  }

  /** `data:` and `blob:` URLs never leave the browser and are skipped. */
  #hopsWithHeaders(): [Hop, RawHeaders | undefined][] {
    const all = [...this.#chains.values()].flatMap(({ hops, rawHeaders }) => {
      let next = 0;
      return hops.map((hop): [Hop, RawHeaders | undefined] => [
        hop,
        hop.hasRawHeaders === true ? rawHeaders[next++] : undefined,
      ]);
    });
    return all
      .filter(([{ url }]) => /^https?:/.test(url))
      .sort(([one], [other]) => one.start - other.start);
  }
}

/**
 * Converts the developer tools' times, which are milliseconds after the request's start (itself in
 * seconds), or -1 for a phase that did not occur.
 */
function waitOf({ url, response, cached, end, dataAt, dataBytes, isMainDocument }: Hop): Wait {
  const nothing = { connectMs: undefined, sentMs: undefined, waitMs: undefined, endMs: undefined };
  const what = {
    origin: originOf(url),
    kind: kindOf(response?.mimeType),
    mainDocument: isMainDocument,
  };
  const { timing, fromDiskCache, fromServiceWorker, fromPrefetchCache } = response ?? {};
  const isLocal = [cached, fromDiskCache, fromServiceWorker, fromPrefetchCache].includes(true);
  if (response === undefined || timing === undefined || isLocal) return { ...what, ...nothing };
  const { requestTime, sendEnd, receiveHeadersStart } = timing;
  const until = end ?? dataAt;
  return {
    ...what,
    connection: response.connectionId,
    connectMs: connectOf(timing),
    sentMs: requestTime * 1000 + sendEnd,
    waitMs: receiveHeadersStart < 0 ? undefined : receiveHeadersStart - sendEnd,
    endMs: until === undefined ? undefined : until * 1000,
    bytes: dataBytes,
  };
}

/**
 * Returns how long the connection took to open. A connection begun before the request seems to
 * begin with the request, or with the end of the proxy choice, so its time is shorter than a round
 * trip.
 */
function connectOf({
  connectStart,
  connectEnd,
  sslStart,
  proxyEnd,
}: ResourceTiming): number | undefined {
  if (connectStart <= Math.max(0, proxyEnd)) return undefined;
  // Over QUIC, connection and TLS are one handshake of one round trip.
  return (sslStart > connectStart ? sslStart : connectEnd) - connectStart;
}

/** Returns the body, or why it cannot be read. */
async function fetchBody(session: CDPSession, requestId: string): Promise<Buffer | string> {
  try {
    const { body, base64Encoded } = await session.send('Network.getResponseBody', { requestId });
    return Buffer.from(body, base64Encoded ? 'base64' : 'utf8');
  } catch (thrown) {
    const why = messageOf(thrown).replace(/^Protocol error \(Network\.getResponseBody\): /, '');
    return `its body could not be read (${why})`;
  }
}

async function contentOf({ method, response, body, wireBytes }: Hop): Promise<Buffer | string> {
  const content = await body;
  const mayHaveNone =
    method === 'HEAD' || method === 'OPTIONS' || [204, 205, 304].includes(response?.status ?? 0);
  if (typeof content === 'string' && (mayHaveNone || wireBytes === 0)) return Buffer.alloc(0);
  return content ?? Buffer.alloc(0);
}

/** Splits fields of the same name, which the browser joins with line feeds. */
function fields(headers: RawHeaders): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value.split('\n').map((each): [string, string] => [name.toLowerCase(), each]),
  );
}
