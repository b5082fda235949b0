import type { Discovery, Protocol, Visit } from '../campaign/plan.js';
import type { Confinement } from '../run/sandbox.js';
import type { Expected } from './expected.js';

/** A page at the browser's own end of the link. */
export interface WarmPage {
  /** Command of the page's server, which prints its address. */
  readonly command: readonly string[];
  /**
   * `host:port` that leads to the server. Undefined for a page without TLS, which is requested at
   * the server's printed address.
   */
  readonly origin?: string;
}

/**
 * Parameters of the process behind the link. They are written to a file, so that the command line
 * has only a path.
 */
export interface LoadJob {
  readonly chromium: string;
  readonly confinement: Confinement;
  readonly protocol: Protocol;
  readonly visit: Visit;
  /** The page that a warm browser shows before the load. */
  readonly warmPage?: WarmPage;
  readonly discovery?: Discovery;
  readonly url: string;
  /**
   * `host:port` of all hosts of the page. They lead to the server; all other names fail to resolve.
   */
  readonly origins: readonly string[];
  /**
   * Undefined for a page that is loaded from its own server: names are then resolved as usual on
   * this machine.
   */
  readonly serverAddress?: string;
  /** Address at which a DNS server answers for the hosts, for an arm that uses one. */
  readonly resolverAddress?: string;
  readonly spki?: string;
  readonly timeoutSeconds: number;
  readonly expected: Expected;
  /** Paints count until this long after the start of the load event. */
  readonly lookMs: number;
  /**
   * Whether the load is watched: Chromium writes its NetLog, with several events per request and
   * one per QUIC packet, and a screenshot at each change of the page. That takes processor time
   * from the load.
   */
  readonly watched: boolean;
  /** A separate folder for this load, with the browser's profile and the result. */
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
