import type { CertificateKind } from './certificate.js';

/**
 * What HTTP an arm lets the browser speak: HTTP/1.1 in clear (`http`) or over TLS (`h1`), HTTP/2, HTTP/3 from the
 * first request on, or what the browser chooses by itself (`auto`).
 */
export const PROTOCOLS = ['http', 'h1', 'h2', 'h3', 'auto'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export const CONGESTION_CONTROLS = ['cubic', 'bbr', 'newreno'] as const;
/** The algorithm that the server uses for TCP and for QUIC, and the client's kernel for TCP. */
export type Congestion = (typeof CONGESTION_CONTROLS)[number];
/** Of an arm that names none: of TCP, and of QUIC where the server is told. */
export const DEFAULT_CONGESTION: Congestion = 'cubic';

/**
 * What the browser knows of the server when the load begins.
 *
 * - `first`: nothing; a fresh profile.
 * - `resumed`: it was there before; its connections are closed and its cache is empty, so that it resumes its
 *   session, and nobody sends early data.
 * - `early-data`: the same, with early data allowed over QUIC and over TCP.
 */
export const VISITS = ['first', 'resumed', 'early-data'] as const;
export type Visit = (typeof VISITS)[number];

/** How a browser that may choose learns of HTTP/3: from a response's `Alt-Svc`, or before that from an HTTPS record in DNS. */
export const DISCOVERIES = ['alt-svc', 'https-record'] as const;
export type Discovery = (typeof DISCOVERIES)[number];

/** One way to load a page. */
export interface Arm {
  readonly name: string;
  readonly protocol: Protocol;
  readonly congestion: Congestion;
  readonly visit: Visit;
  /** What a connection of the server sends before it knows its path, in packets over TCP and QUIC alike. Undefined: what both have, 10. */
  readonly initialWindow?: number;
  /** Whether a TCP connection that has been idle begins with its initial window again. Undefined: it does not, as our QUIC does not. */
  readonly slowStartAfterIdle?: true;
  /** Of `auto` only. */
  readonly discovery?: Discovery;
  /** The name of a server of the plan. */
  readonly server: string;
  /** The arm with which this one is compared, null for none. Undefined of controls, and of campaigns of before each arm had one. */
  readonly comparedWith?: string | null;
  /** The arm of which this is a second one, to show what differences come of nothing (A/A). */
  readonly repeats?: string;
}

/** Whether requests of the arm may go over QUIC. */
export function usesQuic({ protocol }: Pick<Arm, 'protocol'>): boolean {
  return protocol === 'h3' || protocol === 'auto';
}

/** Whether requests of the arm may go over TCP. */
export function usesTcp({ protocol }: Pick<Arm, 'protocol'>): boolean {
  return protocol !== 'h3';
}

/** The server of an arm that names none: `pronghorn serve` as it comes. */
export const OWN_SERVER = 'pronghorn';

/** What answers at the far end of the link. */
export interface ServerSpec {
  readonly name: string;
  /** More arguments for `pronghorn serve`. */
  readonly args: readonly string[];
  /** Another program instead: a command line with places to fill in, split as a shell does. */
  readonly command?: string;
  /** Another program that the lab knows how to start. */
  readonly reference?: ReferenceName;
  /** Where such a program is missing its arms are left out. */
  readonly optional?: true;
}

/** Servers that nobody of this project wrote, which the lab knows how to start. */
export const REFERENCES = ['nghttpd', 'nginx', 'caddy', 'h2o'] as const;
export type ReferenceName = (typeof REFERENCES)[number];

/** What the browser has done when a load begins: nothing, or it has shown a page that shares nothing with the one to come. */
export const BROWSERS = ['cold', 'warm'] as const;
export type BrowserState = (typeof BROWSERS)[number];

/** A link profile of `pronghorn link`: the lab hands the file on and checks only that it can be read. */
export interface ProfileFile {
  readonly name: string;
  readonly path: string;
  readonly text: string;
  /** False where jitter and reordering are left out of it: its name then ends in `-steady`. */
  readonly jitter?: false;
  /** At most so many blocks on this link, where loads take long. Undefined: as many as the plan has. */
  readonly blocks?: number;
}

/** Stands for the link of pages that are loaded where they are, over the machine's own network. */
export const LIVE: ProfileFile = { name: 'live', path: '', text: '' };

export type PageSource =
  | {
      readonly kind: 'url';
      readonly name: string;
      readonly url: string;
      /** Of a certificate that the browser is to take although nobody vouches for it. */
      readonly spki: string | undefined;
    }
  | { readonly kind: 'spec'; readonly name: string; readonly path: string }
  | {
      readonly kind: 'folder';
      readonly name: string;
      readonly path: string;
      readonly requests: number | undefined;
      /** Of a recording: whether its server's think times are imitated. Undefined: if it has any. */
      readonly thinkTimes: boolean | undefined;
    };

/** How many blocks a campaign has. */
export interface Blocks {
  readonly min: number;
  readonly max: number;
  /**
   * From `min` blocks on, a profile and page have enough once the 95 % interval of each ratio of medians ends within this
   * many percent of the ratio. Undefined: all have `max` blocks.
   */
  readonly intervalPercent: number | undefined;
}

/** A checked plan. Each path in it is absolute. */
export interface Plan {
  readonly path: string;
  readonly text: string;
  readonly name: string;
  /** The plan's own seed; without one a campaign draws its own and records it. */
  readonly seed: number | undefined;
  readonly blocks: Blocks;
  /** How long one load may take before it counts as not completed. */
  readonly timeoutSeconds: number;
  readonly browser: BrowserState;
  /** What the servers prove themselves with. */
  readonly certificate: CertificateKind;
  readonly pages: readonly PageSource[];
  readonly profiles: readonly ProfileFile[];
  readonly servers: readonly ServerSpec[];
  readonly arms: readonly Arm[];
  /** The name of the arm that the others are compared with, directly or by others. */
  readonly baseline: string;
  /** Whether the arms' congestion controllers are compared over TCP and QUIC before the first load. */
  readonly conformance: boolean;
  /** Thresholds, as `--fail-if` takes them. */
  readonly failIf: readonly string[];
}
