import type { X509Certificate } from 'node:crypto';
import type { EventEmitter } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { DetailedPeerCertificate, PeerCertificate } from 'node:tls';
import type { AppOptions, Handler, HttpProtocol, TemplatedApp } from '../..';

/** The client and connection of a request. With Hono it is `c.env`. */
export interface ConnectionInfo {
  /** The client's IP address and port. */
  readonly remote: { address: string; port: number; family: 'IPv4' | 'IPv6' };
  /** The HTTP version of the request. */
  readonly protocol: HttpProtocol;
  /** Whether the connection uses TLS. */
  readonly encrypted: boolean;
  /** Whether the request arrived in 0-RTT, where an attacker can replay it. */
  readonly earlyData: boolean;
  /**
   * The client's certificate; `undefined` if the client was not asked for one (`ca_file_name`,
   * `request_cert`) or sent none.
   */
  readonly clientCertificate: X509Certificate | undefined;
  /** Whether the client's certificate is trusted. */
  readonly authorized: boolean;
  /** The properties of `incoming` that programs for @hono/node-server use. */
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
      /**
       * Code of node:tls for the reason why the certificate is not trusted; `null` if it is
       * trusted, and if the client was not asked for one.
       */
      authorizationError: string | null;
      getPeerCertificate(
        detailed?: boolean,
      ): PeerCertificate | DetailedPeerCertificate | Record<string, never>;
    };
  };
}

/** A function that answers a `Request` with a `Response`. */
export type FetchHandler = (request: Request, info: ConnectionInfo) => Response | Promise<Response>;

/** Options of `fetchHandler`. */
export interface FetchHandlerOptions {
  /**
   * Returns the response for an error of the handler. Default: 500, and the error goes to the app's
   * `onError`.
   */
  onError?: (error: unknown) => Response | Promise<Response>;
}

/** Options of `serve`: its own, and those of `Server` (without a certificate, `App`). */
export interface ServeOptions extends Omit<AppOptions, 'onError'>, FetchHandlerOptions {
  /** Answers each request. Loosely typed, because frameworks declare their own types. */
  fetch: (request: Request, info: any) => unknown;
  /** Port to listen on; 0 for any free one. Default: 3000. */
  port?: number | string;
  /** Host name or address to listen on. Default: all addresses. */
  hostname?: string;
  /** Whether other threads of this process may share the port. Default: false. */
  reusePort?: boolean;
  /**
   * Whether the other workers of a cluster (`node:cluster`, PM2) are kept from sharing the port.
   * Default: false.
   */
  exclusive?: boolean;
  /**
   * Whether the global `Response`, `Request` and `fetch` of this thread are replaced by faster
   * ones. Default: true.
   */
  overrideGlobalObjects?: boolean;
  /** Accepted, without effect: unread request bodies need no clean-up here. */
  autoCleanupIncoming?: boolean;
  /** More options of `Server`, where programs for @hono/node-server put them. */
  serverOptions?: AppOptions;
}

/** The server that `serve` returns. Emits `listening` and `close`. */
export class FetchServer extends EventEmitter {
  /** The app underneath, for routes besides the handler, such as WebSocket routes. */
  readonly app: TemplatedApp;
  /** Whether the server is listening. */
  readonly listening: boolean;
  /** URL of the server, such as `https://localhost:8443/`; `undefined` if it is not listening. */
  readonly url: string | undefined;
  /** Returns the address and port, like `net.Server`; `null` if the server is not listening. */
  address(): AddressInfo | null;
  /**
   * Stops accepting requests, lets open ones finish, and resolves when all connections have ended.
   * `timeout`: milliseconds to wait at most. Default: no limit.
   */
  close(options?: { timeout?: number }, callback?: () => void): Promise<void>;
  close(callback: () => void): Promise<void>;
  /** Keeps the process running while the server listens, which is the default. */
  ref(): this;
  /** Lets the process exit although the server listens. */
  unref(): this;
}

/**
 * Starts a server for a fetch handler: HTTP/1.1, HTTP/2 and HTTP/3 on one port with a certificate,
 * HTTP/1.1 in clear text without one. Throws if it cannot listen.
 */
export function serve(
  options: ServeOptions,
  onListening?: (address: AddressInfo) => void,
): FetchServer;

/** Turns a fetch handler into a route handler, as for `app.any('/*', …)`. */
export function fetchHandler(
  fetch: (request: Request, info: ConnectionInfo) => unknown,
  options?: FetchHandlerOptions,
): Handler;

/**
 * Replaces the global `Response`, `Request` and `fetch` of this thread by faster ones. `serve`
 * calls it.
 */
export function overrideGlobals(): void;

declare const LightResponse: typeof globalThis.Response;
/** The faster `Response`, for programs that keep the global one. */
export { LightResponse as Response };
