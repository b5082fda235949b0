import type { ThinkTime } from './think-time.js';

/** One request and its response, from a capture or a HAR file. */
export interface Exchange {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  /**
   * The decoded body; empty for a response without one. Undefined if there was one that could not
   * be read.
   */
  readonly body: Buffer | undefined;
  /** Bytes of the body on the wire, if known. */
  readonly wireBytes: number | undefined;
  readonly protocol: string | undefined;
  readonly type: string | undefined;
  /** Seconds since the first request. */
  readonly startSeconds: number;
  readonly endSeconds: number | undefined;
  /** How long the server took before it answered, if known. */
  readonly think?: ThinkTime;
  /** Whether this is the browser's own request for the page's icon. */
  readonly icon?: boolean;
}

/** A difference between a recording and its replay. */
export interface Note {
  readonly method: string;
  readonly url: string;
  readonly reason: string;
}

/** The document that a page's URL led to. */
export interface LoadedDocument {
  readonly url: string;
  readonly status: number;
  readonly title?: string;
}

/** A captured load, in the order in which its requests began. */
export interface Capture {
  /** URL that was loaded. */
  readonly url: string;
  readonly capturedAt: string | undefined;
  readonly browser: string | undefined;
  readonly document?: LoadedDocument;
  /** Start of the load event, in seconds since the first request; undefined if unknown. */
  readonly loadSeconds?: number;
  /** Number of requests over the network, including failed ones. */
  readonly requests: number;
  readonly exchanges: readonly Exchange[];
  readonly notes: readonly Note[];
}
