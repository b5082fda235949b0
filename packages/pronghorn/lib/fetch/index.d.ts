import type { X509Certificate } from 'node:crypto';
import type { EventEmitter } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { DetailedPeerCertificate, PeerCertificate } from 'node:tls';
import type { AppOptions, Handler, HttpProtocol, TemplatedApp } from '../..';

/** Who asks and how. With Hono it is `c.env`. */
export interface ConnectionInfo {
  readonly remote: { address: string; port: number; family: 'IPv4' | 'IPv6' };
  readonly protocol: HttpProtocol;
  readonly encrypted: boolean;
  /** The request came before the handshake was done (0-RTT): the client may send it again. */
  readonly earlyData: boolean;
  /** The certificate that the client has shown; `undefined` if it was not asked (`ca_file_name`, `request_cert`), or showed none. */
  readonly clientCertificate: X509Certificate | undefined;
  /** Whether that is trusted. */
  readonly authorized: boolean;
  /** What programs for @hono/node-server look at. */
  readonly incoming: {
    method: string;
    url: string;
    httpVersion: string;
    headers: Record<string, string>;
    rawHeaders: string[];
    socket: {
      remoteAddress: string;
      remotePort: number;
      remoteFamily: 'IPv4' | 'IPv6';
      encrypted: boolean;
      authorized: boolean;
      /** Why the certificate is not trusted, by the codes of node:tls; `null` if it is, and if the client was not asked for one. */
      authorizationError: string | null;
      getPeerCertificate(detailed?: boolean): PeerCertificate | DetailedPeerCertificate | Record<string, never>;
    };
  };
}

export type FetchHandler = (request: Request, info: ConnectionInfo) => Response | Promise<Response>;

export interface FetchHandlerOptions {
  /** The response in place of an error; without it 500, and what the application's `onError` does. */
  onError?: (error: unknown) => Response | Promise<Response>;
}

/** Options of `Server`, or without a certificate of `App`, but for `onError`. */
export interface ServeOptions extends Omit<AppOptions, 'onError'>, FetchHandlerOptions {
  // Frameworks declare what they take and give in their own words.
  fetch: (request: Request, info: any) => unknown;
  /** 3000; 0 for any that is free. */
  port?: number | string;
  /** All addresses of the machine. */
  hostname?: string;
  /** Whether other threads of this process may listen on the port as well: false. */
  reusePort?: boolean;
  /** Whether the other workers of a cluster (`node:cluster`, PM2) may not: false. */
  exclusive?: boolean;
  /** Whether `Response`, `Request` and `fetch` become those that cost little, for the whole thread: true. */
  overrideGlobalObjects?: boolean;
  /** Taken, and without effect: what is left of content that nobody reads is no burden. */
  autoCleanupIncoming?: boolean;
  /** The same as beside it, where programs for @hono/node-server have it. */
  serverOptions?: AppOptions;
}

export class FetchServer extends EventEmitter {
  /** For routes that are none of the handler's. */
  readonly app: TemplatedApp;
  readonly listening: boolean;
  readonly url: string | undefined;
  address(): AddressInfo | null;
  /** Takes no new requests, lets those that run finish, and resolves when all has ended. */
  close(options?: { timeout?: number }, callback?: () => void): Promise<void>;
  close(callback: () => void): Promise<void>;
  ref(): this;
  unref(): this;
}

/** Serves what `fetch` answers: over HTTP/1.1, HTTP/2 and HTTP/3 with a certificate, over HTTP/1.1 without one. */
export function serve(options: ServeOptions, onListening?: (address: AddressInfo) => void): FetchServer;

/** A handler of routes, as for `app.any('/*', …)`. */
export function fetchHandler(
  fetch: (request: Request, info: ConnectionInfo) => unknown,
  options?: FetchHandlerOptions,
): Handler;

/** Lets `new Response`, `new Request` and `fetch` of this thread be those that cost little. `serve` calls it. */
export function overrideGlobals(): void;

declare const LightResponse: typeof globalThis.Response;
/** A Response that costs little, for those who leave the global one alone. */
export { LightResponse as Response };
