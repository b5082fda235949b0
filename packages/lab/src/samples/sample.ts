import type { Label } from '../trace/label.js';
import type { LinkReport } from '../run/link-report.js';
import type { MachineCpu } from '../run/machine-cpu.js';
import type { Congestion, Discovery, Protocol, Visit } from '../campaign/plan.js';
import type { WarmUp } from '../run/warm-up.js';

/** Version of the sample format. It changes when a field changes its meaning or is removed. */
export const SAMPLE_SCHEMA = 2;

/**
 * How a load ended.
 *
 * - `completed`: the load event fired, and each request that counts was answered in full.
 * - `incomplete`: the load event fired, but a request that counts failed or is missing.
 * - `timeout`: no load event within the plan's time.
 * - `failed`: the browser gave up loading the document, with an error of its own.
 * - `not-run`: the lab itself failed: link, server or browser did not start or did not end. Such a
 *   load is never valid.
 */
export type Outcome = 'completed' | 'incomplete' | 'timeout' | 'failed' | 'not-run';

/**
 * An entry of the browser's performance timeline, as returned by `toJSON()`: milliseconds since
 * navigation start.
 */
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

/** A request as reported by the browser's developer tools. */
export interface DevToolsRequest {
  readonly requestId: string;
  readonly method?: string;
  readonly url: string;
  readonly type: string;
  readonly priority: string;
  /** Whether this is the main frame's document. */
  readonly mainDocument?: boolean;
  /** Whether this is the browser's own request for the page's icon, which does not count. */
  readonly icon?: boolean;
  /** Undefined until response headers were received. */
  readonly protocol?: string;
  readonly status?: number;
  readonly statusText?: string;
  readonly mimeType?: string;
  readonly connectionId?: number;
  readonly connectionReused?: boolean;
  /**
   * How the browser chose the protocol: `alternativeJobWonRace`, `mainJobWonRace`,
   * `dnsAlpnH3JobWonRace` …
   */
  readonly alternateProtocolUsage?: string;
  readonly remoteAddress?: string;
  readonly timing?: Readonly<Record<string, number>>;
  /**
   * When the request was about to be sent, on the system's monotonic clock. `endedMonotonicMs` is
   * its end.
   */
  readonly startedMonotonicMs?: number;
  readonly endedMonotonicMs?: number;
  readonly finished: boolean;
  /** Bytes on the connection, including header fields; known at the end of the response. */
  readonly encodedDataLength?: number;
  /** The browser's error: `net::ERR_TIMED_OUT`. */
  readonly error?: string;
}

/** The browser's observations of a load. */
export interface BrowserSide {
  readonly outcome: Exclude<Outcome, 'not-run'>;
  /** Why it is not `completed`. */
  readonly reason?: string;
  /**
   * Why the browser shows an error page of the server or of its own instead of the page; the times
   * are not the page's then.
   */
  readonly documentFault?: string;
  readonly navigation?: NavigationEntry;
  readonly resources: readonly TimelineEntry[];
  readonly requests: readonly DevToolsRequest[];
  readonly firstContentfulPaintMs?: number;
  readonly largestContentfulPaintMs?: number;
  /** Larger paints that came too long after the load event to count. */
  readonly latePaintsMs?: readonly number[];
  /**
   * Paints counted until this long after the start of the load event. Absent in samples of earlier
   * versions, and without a timeline.
   */
  readonly lookMs?: number;
  /** Congestion control of the browser's QUIC connections for sent data; only with a NetLog. */
  readonly quicCongestion?: { readonly algorithm: string; readonly initialWindowPackets?: number };
  /**
   * Number of the browser's queries for an HTTPS record to the lab's DNS server; only for an arm
   * that has one.
   */
  readonly httpsRecordQueries?: number;
  /** Start of navigation in wall-clock time. */
  readonly timeOriginMs?: number;
  /** The same on the system's monotonic clock, which the link and the NetLog use too. */
  readonly navigationStartMonotonicMs?: number;
  /** Processor time of the browser's processes from the start of navigation to the load's end. */
  readonly cpuSeconds?: BrowserCpu;
}

/** Processor time of the browser by type of process. */
export interface BrowserCpu {
  /** The network service. */
  readonly network: number;
  readonly renderer: number;
  readonly gpu: number;
  /** The browser's main process and all others. */
  readonly other: number;
}

/** Processor time in seconds, user and system. */
export interface LoadCpu {
  /** Server and everything else at the far end, from its start to its end. */
  readonly server?: number;
  /** The emulator's thread. */
  readonly link?: number;
  readonly browser?: BrowserCpu;
}

/** Times of a load in seconds since navigation start. A time that was not reached is absent. */
export interface Times {
  /** `loadEventEnd`: the figure in tables and violins. */
  readonly load?: number;
  readonly firstByte?: number;
  readonly lastByte?: number;
  readonly firstContentfulPaint?: number;
  readonly largestContentfulPaint?: number;
}

/** The server's counters (`pronghorn serve --stats`) that prove the kind of visit. */
export interface ServerCounters {
  readonly tcpConnections: number;
  readonly quicConnections: number;
  readonly tcpResumed: number;
  readonly quicResumed: number;
  readonly earlyRequests: number;
  readonly quicMigrations: number;
}

/** One line of `samples.jsonl`: all data of one load. */
export interface Sample {
  readonly schema: typeof SAMPLE_SCHEMA;
  readonly load: number;
  readonly profile: string;
  readonly page: string;
  /** 0 for a rehearsal, which does not count for any figure. */
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
  /** Total time of link, server, browser and load. */
  readonly wallSeconds: number;
  readonly outcome: Outcome;
  readonly reason?: string;
  readonly valid: boolean;
  /** Each rule that the load broke. Empty if valid. */
  readonly invalidReasons: readonly string[];
  /**
   * Set if the load is invalid only because of its round: the machine was starved, or the link
   * late. In no line of the file, since it is known only at the end of the round.
   */
  readonly isRoundOnly?: true;
  readonly times: Times;
  readonly cpuSeconds?: LoadCpu;
  /** Use of the machine's processors during the load. */
  readonly machine?: MachineCpu;
  /** The server's connections before the browser's, and whether each succeeded. */
  readonly warmUps?: readonly WarmUp[];
  /** What delayed the load, as far as rules can tell; undefined if there was nothing to examine. */
  readonly labels?: readonly Label[];
  readonly browser?: BrowserSide;
  readonly link?: LinkReport;
  /** Number of requests in our server's access log, per protocol. */
  readonly serverRequests: Readonly<Record<string, number>>;
  /** Our server's counters that concern the visit; undefined for another server. */
  readonly serverCounters?: ServerCounters;
  /** Number of other campaigns that measured on the machine during this load, if permitted. */
  readonly otherCampaigns?: number;
  /**
   * Folder with the load's packets, TCP samples, link report, output and, if it was watched,
   * NetLog, qlog and screenshots.
   */
  readonly traces?: string;
}
