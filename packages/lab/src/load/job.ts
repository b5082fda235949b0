import type { Discovery, Protocol, Visit } from '../plan.js';
import type { Confinement } from '../sandbox.js';
import type { Expected } from './expected.js';

/** A page at the browser's own end of the link. */
export interface WarmPage {
  /** The server's command, which says where it listens. */
  readonly command: readonly string[];
  /** `host:port` that leads to it. Undefined for one that is asked in clear, at the address where it says that it listens. */
  readonly origin?: string;
}

/** What the process behind the link is told. Written as a file, since a path is all that a command line should carry. */
export interface LoadJob {
  readonly chromium: string;
  readonly confinement: Confinement;
  readonly protocol: Protocol;
  readonly visit: Visit;
  /** What a warm browser has shown before the load. */
  readonly warmPage?: WarmPage;
  readonly discovery?: Discovery;
  readonly url: string;
  /** `host:port` of all that the page names; they lead to the server, and every other name to nothing. */
  readonly origins: readonly string[];
  /** Undefined for a page that is loaded where it is: names are then looked up as on this machine. */
  readonly serverAddress?: string;
  /** Where a DNS server is to answer for the hosts, for an arm that asks one. */
  readonly resolverAddress?: string;
  readonly spki?: string;
  readonly timeoutSeconds: number;
  readonly expected: Expected;
  /** Until how long after the start of the load event its paints count. */
  readonly lookMs: number;
  /**
   * Whether the load is watched: Chromium writes its NetLog, with several events for each request and one for each QUIC
   * packet, and a picture of the page at each change. That takes processor time from the load.
   */
  readonly watched: boolean;
  /** A folder of this load's own. The browser's profile is made in it, and the result written to it. */
  readonly folder: string;
}

/** Files in a job's folder. */
export const JobFile = {
  Job: 'job.json',
  Result: 'browser.json',
  NetLog: 'netlog.json',
  Screens: 'screens',
  LinkReport: 'link.json',
  Packets: 'packets.csv',
  TcpInfo: 'tcp-info.csv',
  Qlog: 'qlog',
  Output: 'output.log',
} as const;
