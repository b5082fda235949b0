import type { LinkReport } from './link-report.js';
import type { Congestion, Protocol } from './plan.js';

/** The version of the sample format. It changes when a field changes its meaning or goes away. */
export const SAMPLE_SCHEMA = 1;

/**
 * How a load ended.
 *
 * - `completed`: the load event fired, and each request of the page was answered in full.
 * - `incomplete`: the load event fired, but a request failed or is missing.
 * - `timeout`: no load event within the plan's time.
 * - `failed`: the browser gave the document up, with an error of its own.
 * - `not-run`: the lab itself failed: link, server or browser did not start or did not end. Never valid.
 */
export type Outcome = 'completed' | 'incomplete' | 'timeout' | 'failed' | 'not-run';

/** An entry of the browser's performance timeline, as `toJSON()` gives it: milliseconds since navigation start. */
export interface TimelineEntry {
  readonly name: string;
  readonly startTime: number;
  readonly duration: number;
  readonly nextHopProtocol: string;
  readonly fetchStart: number;
  readonly connectStart: number;
  readonly connectEnd: number;
  readonly requestStart: number;
  readonly responseStart: number;
  readonly responseEnd: number;
  readonly transferSize: number;
  readonly encodedBodySize: number;
  readonly [other: string]: unknown;
}

export interface NavigationEntry extends TimelineEntry {
  readonly domContentLoadedEventEnd: number;
  readonly loadEventEnd: number;
}

/** A request as the browser's developer tools saw it. */
export interface DevToolsRequest {
  readonly requestId: string;
  readonly url: string;
  readonly type: string;
  readonly priority: string;
  /** Undefined until response headers have come. */
  readonly protocol?: string;
  readonly status?: number;
  readonly connectionId?: number;
  readonly connectionReused?: boolean;
  readonly remoteAddress?: string;
  readonly timing?: Readonly<Record<string, number>>;
  readonly finished: boolean;
  /** Bytes on the connection, headers included, known at the end of the response. */
  readonly encodedDataLength?: number;
  /** The browser's own word for a failure: `net::ERR_TIMED_OUT`. */
  readonly error?: string;
}

/** What the browser's side of a load saw. */
export interface BrowserSide {
  readonly outcome: Exclude<Outcome, 'not-run'>;
  /** Why it is not `completed`. */
  readonly reason?: string;
  readonly navigation?: NavigationEntry;
  readonly resources: readonly TimelineEntry[];
  readonly requests: readonly DevToolsRequest[];
  readonly firstContentfulPaintMs?: number;
  readonly largestContentfulPaintMs?: number;
  /** The congestion control that the browser's QUIC connections had for what they send; only with a NetLog. */
  readonly quicCongestion?: { readonly algorithm: string; readonly initialWindowPackets?: number };
}

/** Times of a load in seconds since navigation start. A time that was not reached is left out. */
export interface Times {
  /** `loadEventEnd`: the figure that tables and violins show. */
  readonly load?: number;
  readonly firstByte?: number;
  readonly lastByte?: number;
  readonly firstContentfulPaint?: number;
  readonly largestContentfulPaint?: number;
}

/** One line of `samples.jsonl`: one load, with all that is known of it. */
export interface Sample {
  readonly schema: typeof SAMPLE_SCHEMA;
  readonly load: number;
  readonly profile: string;
  /** 0 for a rehearsal, which counts for no figure. */
  readonly block: number;
  readonly position: number;
  readonly arm: string;
  readonly protocol: Protocol;
  readonly congestion: Congestion;
  readonly linkSeed: number;
  readonly startedAt: string;
  /** How long link, server, browser and load took together. */
  readonly wallSeconds: number;
  readonly outcome: Outcome;
  readonly reason?: string;
  readonly valid: boolean;
  /** Each rule that the load broke. Empty when valid. */
  readonly invalidReasons: readonly string[];
  readonly times: Times;
  readonly browser?: BrowserSide;
  readonly link?: LinkReport;
  /** Requests that the server's access log shows, per protocol. */
  readonly serverRequests: Readonly<Record<string, number>>;
  /** The folder with link report, program output and NetLog if any, kept for a load that went wrong or on request. */
  readonly kept?: string;
}
