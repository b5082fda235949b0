import type { ThinkTime } from './think-time.js';

/** One request and its response, as a capture saw them or a HAR file tells of them. */
export interface Exchange {
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** The content without coding; empty where a response has none. Undefined when there was some and it cannot be had. */
  readonly body: Buffer | undefined;
  /** Bytes of the content on the wire, where that is known. */
  readonly wireBytes: number | undefined;
  readonly protocol: string | undefined;
  readonly type: string | undefined;
  /** Seconds since the first request. */
  readonly startSeconds: number;
  readonly endSeconds: number | undefined;
  /** How long the server took before it answered, where that is known. */
  readonly think?: ThinkTime;
  /** The browser's own request for the page's icon. */
  readonly icon?: boolean;
}

/** Something that a replay cannot give as it was. */
export interface Note {
  readonly method: string;
  readonly url: string;
  readonly reason: string;
}

/** What a page's URL led to. */
export interface LoadedDocument {
  readonly url: string;
  readonly status: number;
  readonly title?: string;
}

/** A load as it was captured, in the order in which its requests began. */
export interface Capture {
  /** What was loaded. */
  readonly url: string;
  readonly capturedAt: string | undefined;
  readonly browser: string | undefined;
  readonly document?: LoadedDocument;
  /** When the load event began, in seconds since the first request; undefined where nobody says. */
  readonly loadSeconds?: number;
  /** All requests over the network, failed ones too. */
  readonly requests: number;
  readonly exchanges: readonly Exchange[];
  readonly notes: readonly Note[];
}
