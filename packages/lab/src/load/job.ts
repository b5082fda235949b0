import type { Protocol } from '../plan.js';

/** What the process behind the link is told. Written as a file, since a path is all that a command line should carry. */
export interface LoadJob {
  readonly chromium: string;
  readonly protocol: Protocol;
  readonly url: string;
  readonly serverAddress: string;
  readonly spki: string;
  readonly timeoutSeconds: number;
  /** Requests that the page makes when all goes well. */
  readonly expectedRequests: number;
  /** Whether Chromium writes its NetLog, which takes processor time from the load: it has several events for each request, and one for each QUIC packet. */
  readonly netLog: boolean;
  /** A folder of this load's own. The browser's profile is made in it, and the result written to it. */
  readonly folder: string;
}

/** Files in a job's folder. */
export const JobFile = {
  Job: 'job.json',
  Result: 'browser.json',
  NetLog: 'netlog.json',
  LinkReport: 'link.json',
  Output: 'output.log',
  UserData: 'user-data',
} as const;
