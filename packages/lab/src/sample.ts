import type { Label } from './trace/label.js';
import type { LinkReport } from './link-report.js';
import type { MachineCpu } from './machine-cpu.js';
import type { Congestion, Discovery, Protocol, Visit } from './plan.js';
import type { WarmUp } from './warm-up.js';

/** The version of the sample format. It changes when a field changes its meaning or goes away. */
export const SAMPLE_SCHEMA = 2;

/**
 * How a load ended.
 *
 * - `completed`: the load event fired, and each request that counts was answered in full.
 * - `incomplete`: the load event fired, but a request that counts failed or is missing.
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
  readonly loadEventStart: number;
  readonly loadEventEnd: number;
}

/** A request as the browser's developer tools saw it. */
export interface DevToolsRequest {
  readonly requestId: string;
  readonly method?: string;
  readonly url: string;
  readonly type: string;
  readonly priority: string;
  /** Of the page's own frame, not of one in it. */
  readonly mainDocument?: boolean;
  /** The browser's own request for the page's icon, which counts for nothing. */
  readonly icon?: boolean;
  /** Undefined until response headers have come. */
  readonly protocol?: string;
  readonly status?: number;
  readonly statusText?: string;
  readonly mimeType?: string;
  readonly connectionId?: number;
  readonly connectionReused?: boolean;
  /** How the browser came to the protocol: `alternativeJobWonRace`, `mainJobWonRace`, `dnsAlpnH3JobWonRace` … */
  readonly alternateProtocolUsage?: string;
  readonly remoteAddress?: string;
  readonly timing?: Readonly<Record<string, number>>;
  /** When it was about to be sent, and when it had ended, on the system's monotonic clock. */
  readonly startedMonotonicMs?: number;
  readonly endedMonotonicMs?: number;
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
  /** Why what the browser shows is not the page, but an error page of the server or of its own: its times are not the page's. */
  readonly documentFault?: string;
  readonly navigation?: NavigationEntry;
  readonly resources: readonly TimelineEntry[];
  readonly requests: readonly DevToolsRequest[];
  readonly firstContentfulPaintMs?: number;
  readonly largestContentfulPaintMs?: number;
  /** Larger paints that came too long after the load event to count. */
  readonly latePaintsMs?: readonly number[];
  /** Until how long after the start of the load event paints counted; absent of samples of earlier versions, and without a timeline. */
  readonly lookMs?: number;
  /** The congestion control that the browser's QUIC connections had for what they send; only with a NetLog. */
  readonly quicCongestion?: { readonly algorithm: string; readonly initialWindowPackets?: number };
  /** How often the browser asked the lab's DNS server for an HTTPS record; only for an arm that has one. */
  readonly httpsRecordQueries?: number;
  /** The start of the navigation on the clock of the day. */
  readonly timeOriginMs?: number;
  /** The same on the system's monotonic clock, where the link's and the NetLog's times are too. */
  readonly navigationStartMonotonicMs?: number;
  /** What the browser's processes used from the start of the navigation to the load's end. */
  readonly cpuSeconds?: BrowserCpu;
}

/** Processor time of the browser by kind of process. */
export interface BrowserCpu {
  /** The network service. */
  readonly network: number;
  readonly renderer: number;
  readonly gpu: number;
  /** The browser's own process and all others. */
  readonly other: number;
}

/** Processor time in seconds, user and system. */
export interface LoadCpu {
  /** Server and whatever else ran at the far end, from its start to its end. */
  readonly server?: number;
  /** The emulator's thread. */
  readonly link?: number;
  readonly browser?: BrowserCpu;
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

/** Of the server's counters (`pronghorn serve --stats`) those that prove what a visit was. */
export interface ServerCounters {
  readonly tcpConnections: number;
  readonly quicConnections: number;
  readonly tcpResumed: number;
  readonly quicResumed: number;
  readonly earlyRequests: number;
  readonly quicMigrations: number;
}

/** One line of `samples.jsonl`: one load, with all that is known of it. */
export interface Sample {
  readonly schema: typeof SAMPLE_SCHEMA;
  readonly load: number;
  readonly profile: string;
  readonly page: string;
  /** 0 for a rehearsal, which counts for no figure. */
  readonly block: number;
  readonly position: number;
  readonly arm: string;
  readonly protocol: Protocol;
  readonly congestion: Congestion;
  readonly visit: Visit;
  readonly discovery?: Discovery;
  readonly server: string;
  readonly linkSeed: number;
  readonly startedAt: string;
  /** How long link, server, browser and load took together. */
  readonly wallSeconds: number;
  readonly outcome: Outcome;
  readonly reason?: string;
  readonly valid: boolean;
  /** Each rule that the load broke. Empty when valid. */
  readonly invalidReasons: readonly string[];
  /** Only its round is against it: the machine was starved in it, or the link late. In no line of the file: that is known when the round has ended. */
  readonly isRoundOnly?: true;
  readonly times: Times;
  readonly cpuSeconds?: LoadCpu;
  /** What the machine's processors did while the load was made. */
  readonly machine?: MachineCpu;
  /** The connections that the server had before the browser's, and whether each came about. */
  readonly warmUps?: readonly WarmUp[];
  /** Why it took its time, as far as rules can tell; undefined where they had nothing to look at. */
  readonly labels?: readonly Label[];
  readonly browser?: BrowserSide;
  readonly link?: LinkReport;
  /** Requests that the access log of our server shows, per protocol. */
  readonly serverRequests: Readonly<Record<string, number>>;
  /** What our server counted that bears on the visit; undefined for another server. */
  readonly serverCounters?: ServerCounters;
  /** How many other campaigns measured on the machine beside this load, where they were allowed to. */
  readonly otherCampaigns?: number;
  /** The folder of the load's packets, TCP samples, link report, output and, if it was watched, NetLog, qlog and pictures. */
  readonly traces?: string;
}
