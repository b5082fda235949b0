import type { CertificateKind } from '../run/certificate.js';

/**
 * An arm's protocol: HTTP/1.1 without TLS (`http`) or with TLS (`h1`), HTTP/2, HTTP/3 from the
 * first request on, or the browser's own choice (`auto`).
 */
export const PROTOCOLS = ['http', 'h1', 'h2', 'h3', 'auto'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export const CONGESTION_CONTROLS = ['cubic', 'bbr', 'newreno'] as const;
/**
 * Congestion control algorithm of the server for TCP and QUIC, and of the client's kernel for TCP.
 */
export type Congestion = (typeof CONGESTION_CONTROLS)[number];
/**
 * Congestion control of an arm that names none: for TCP, and for QUIC if the server can be
 * configured.
 */
export const DEFAULT_CONGESTION: Congestion = 'cubic';

/**
 * What the browser knows of the server when the load begins.
 *
 * - `first`: nothing; a fresh profile.
 * - `resumed`: it has visited the page; its connections are closed and its cache is empty, so it
 *   resumes its session, without early data.
 * - `early-data`: the same, with early data allowed over QUIC and over TCP.
 */
export const VISITS = ['first', 'resumed', 'early-data'] as const;
export type Visit = (typeof VISITS)[number];

/**
 * How a browser with a choice discovers HTTP/3: by a response's `Alt-Svc`, or earlier by an HTTPS
 * record in DNS.
 */
export const DISCOVERIES = ['alt-svc', 'https-record'] as const;
export type Discovery = (typeof DISCOVERIES)[number];

/** One way to load a page. */
export interface Arm {
  readonly name: string;
  readonly protocol: Protocol;
  readonly congestion: Congestion;
  readonly visit: Visit;
  /**
   * The server's initial window in packets, the same over TCP and QUIC. Undefined: the default of
   * both, 10.
   */
  readonly initialWindow?: number;
  /**
   * Whether an idle TCP connection restarts with its initial window. Undefined: it does not, as our
   * QUIC does not.
   */
  readonly slowStartAfterIdle?: true;
  /** For `auto` only. */
  readonly discovery?: Discovery;
  /** Name of a server in the plan. */
  readonly server: string;
  /**
   * The arm with which this one is compared, null for none. Undefined for controls, and in
   * campaigns older than this field.
   */
  readonly comparedWith?: string | null;
  /**
   * The arm of which this one is an identical copy (A/A), to show differences that come from noise
   * alone.
   */
  readonly repeats?: string;
}

/** Returns whether requests of the arm may use QUIC. */
export function usesQuic({ protocol }: Pick<Arm, 'protocol'>): boolean {
  return protocol === 'h3' || protocol === 'auto';
}

/** Returns whether requests of the arm may use TCP. */
export function usesTcp({ protocol }: Pick<Arm, 'protocol'>): boolean {
  return protocol !== 'h3';
}

/** Server of an arm that names none: `pronghorn serve` with its defaults. */
export const OWN_SERVER = 'pronghorn';

/** The server at the far end of the link. */
export interface ServerSpec {
  readonly name: string;
  /** Additional arguments for `pronghorn serve`. */
  readonly args: readonly string[];
  /** Command line of another server, with placeholders, split as a shell does. */
  readonly command?: string;
  /** A reference server that the lab knows how to start. */
  readonly reference?: ReferenceName;
  /** Whether the server's arms are skipped if its program is missing. */
  readonly optional?: true;
}

/** Third-party servers that the lab knows how to start. */
export const REFERENCES = ['nghttpd', 'nginx', 'caddy', 'h2o'] as const;
export type ReferenceName = (typeof REFERENCES)[number];

/**
 * State of the browser when a load begins: just started, or has shown a page that shares nothing
 * with the measured one.
 */
export const BROWSERS = ['cold', 'warm'] as const;
export type BrowserState = (typeof BROWSERS)[number];

/**
 * A profile for `pronghorn link`. The lab passes the file on and checks only that it can be read.
 */
export interface ProfileFile {
  readonly name: string;
  readonly path: string;
  readonly text: string;
  /**
   * False if jitter and reordering are removed from the profile; its name then ends in `-steady`.
   */
  readonly jitter?: false;
  /** Maximum number of blocks on this link, for slow links. Undefined: the plan's number. */
  readonly blocks?: number;
}

/**
 * Stands for the link of pages that are loaded from their own servers, over the machine's network.
 */
export const LIVE: ProfileFile = { name: 'live', path: '', text: '' };

export type PageSource =
  | {
      readonly kind: 'url';
      readonly name: string;
      readonly url: string;
      /**
       * Key hash of a certificate that the browser accepts although no trusted issuer signed it.
       */
      readonly spki: string | undefined;
    }
  | { readonly kind: 'spec'; readonly name: string; readonly path: string }
  | {
      readonly kind: 'folder';
      readonly name: string;
      readonly path: string;
      readonly requests: number | undefined;
      /** Whether a recording's think times are imitated. Undefined: if it has any. */
      readonly thinkTimes: boolean | undefined;
    };

/** Number of blocks of a campaign. */
export interface Blocks {
  readonly min: number;
  readonly max: number;
  /**
   * From `min` blocks on, a profile and page have enough once the 95 % interval of each ratio of
   * medians ends within this many percent of the ratio. Undefined: always `max` blocks.
   */
  readonly intervalPercent: number | undefined;
}

/** A checked plan. All paths in it are absolute. */
export interface Plan {
  readonly path: string;
  readonly text: string;
  readonly name: string;
  /** The plan's seed; without one the campaign draws a seed and records it. */
  readonly seed: number | undefined;
  readonly blocks: Blocks;
  /** How long a load may take before it counts as incomplete. */
  readonly timeoutSeconds: number;
  readonly browser: BrowserState;
  /** Kind of certificate that the servers present. */
  readonly certificate: CertificateKind;
  readonly pages: readonly PageSource[];
  readonly profiles: readonly ProfileFile[];
  readonly servers: readonly ServerSpec[];
  readonly arms: readonly Arm[];
  /** Name of the arm that the others are compared with, directly or through other arms. */
  readonly baseline: string;
  /** Whether the arms' congestion controllers are compared over TCP and QUIC before the first load. */
  readonly conformance: boolean;
  /** Conditions in the syntax of `--fail-if`. */
  readonly failIf: readonly string[];
}
