import type * as http from 'node:http';
import type { EventEmitter } from 'node:events';
import type { AddressInfo, ListenOptions } from 'node:net';
import type { Duplex } from 'node:stream';
import type { AppOptions, TemplatedApp, TlsOptions } from '../..';

/** Options of `createServer`: those of `Server` (without a certificate, `App`) and node:http. */
export interface ServerOptions extends AppOptions {
  /** Class of requests. Default: `IncomingMessage`. */
  IncomingMessage?: typeof http.IncomingMessage;
  /** Class of responses. Default: `ServerResponse`. */
  ServerResponse?: typeof http.ServerResponse;
  /** Whether repeated request headers are joined by `, `. Default: false. */
  joinDuplicateHeaders?: boolean;
  /** The limit `head_timeout`, in milliseconds. */
  headersTimeout?: number;
  /** The limit `idle_timeout`, in milliseconds. */
  keepAliveTimeout?: number;
  /** The limit `field_section_bytes`, in bytes. */
  maxHeaderSize?: number;
  /** The limit `field_lines`, in lines. */
  maxHeadersCount?: number;
  // Accepted, without effect: see docs/node/frameworks.md.
  requestTimeout?: number;
  connectionsCheckingInterval?: number;
  highWaterMark?: number;
  insecureHTTPParser?: boolean;
  noDelay?: boolean;
  keepAlive?: boolean;
  keepAliveInitialDelay?: number;
  keepAliveTimeoutBuffer?: number;
  uniqueHeaders?: (string | string[])[];
  rejectNonStandardBodyWrites?: boolean;
  requireHostHeader?: boolean;
  allowHTTP1?: boolean;
  ALPNProtocols?: string[];
  timeout?: number;
}

/** A listener of `request`. */
export type RequestListener = (req: http.IncomingMessage, res: http.ServerResponse) => void;

/**
 * The socket of an `upgrade` event. Listeners write an HTTP/1.1 response to it as bytes, whatever
 * the version of the request. After a 101 the socket carries the new protocol in both directions;
 * any other status is sent as an ordinary response. It has the properties of `net.Socket` that need
 * no file descriptor.
 */
export interface UpgradeSocket extends Duplex {
  /** The client's IP address. */
  readonly remoteAddress: string;
  /** The client's port. */
  readonly remotePort: number;
  /** `IPv4` or `IPv6`. */
  readonly remoteFamily: string;
  /** The address that the server listens on. */
  readonly localAddress: string | undefined;
  /** The port that the server listens on. */
  readonly localPort: number | undefined;
  /** `IPv4` or `IPv6`. */
  readonly localFamily: string | undefined;
  /** Whether the connection uses TLS. */
  readonly encrypted: boolean;
  /** Whether the client sent a trusted certificate. */
  readonly authorized: boolean;
  /** `http/1.1`, `h2` or `h3`; false in clear text. */
  readonly alpnProtocol: string | false;
  /** The server name of the TLS handshake (SNI); false if the client sent none. */
  readonly servername: string | false | undefined;
  /** Whether the request arrived in 0-RTT. */
  readonly earlyData: boolean;
  /** Bytes received from the client since the upgrade. */
  readonly bytesRead: number;
  /** Bytes written by the program, the head of the response included. */
  readonly bytesWritten: number;
  /** Always false: the connection exists. */
  readonly connecting: false;
  /** Always false: the connection exists. */
  readonly pending: false;
  /** Which directions are open. */
  readonly readyState: 'open' | 'readOnly' | 'writeOnly' | 'closed';
  /** The inactivity timeout in milliseconds; 0 for none. */
  readonly timeout: number;
  /** Returns the address that the server listens on. */
  address(): AddressInfo | Record<string, never>;
  /** Returns `TLSv1.2` or `TLSv1.3`; `null` in clear text. */
  getProtocol(): string | null;
  /** Emits `timeout` after this many milliseconds without bytes in either direction. */
  setTimeout(milliseconds: number, callback?: () => void): this;
  /** Without effect: the engine manages the connection. */
  setNoDelay(noDelay?: boolean): this;
  /** Without effect: the engine manages the connection. */
  setKeepAlive(enable?: boolean, initialDelay?: number): this;
  /** Without effect: the engine manages the connection. */
  ref(): this;
  /** Without effect: the engine manages the connection. */
  unref(): this;
  /** Ends the socket, and destroys it when everything has been sent. */
  destroySoon(): void;
  /** Resets the stream, or closes the connection over HTTP/1.1. Unsent bytes are lost. */
  resetAndDestroy(): this;
}

/** A listener of `upgrade`. `head` is always empty: bytes of the client are emitted as `data`. */
export type UpgradeListener = (
  req: http.IncomingMessage,
  socket: UpgradeSocket,
  head: Buffer,
) => void;

/** A server with the interface of `http.Server`, over HTTP/1.1, HTTP/2 and HTTP/3. */
export class Server extends EventEmitter {
  on(event: 'upgrade', listener: UpgradeListener): this;
  on(event: 'request' | 'checkContinue', listener: RequestListener): this;
  on(event: string | symbol, listener: (...args: any[]) => void): this;
  once(event: 'upgrade', listener: UpgradeListener): this;
  once(event: 'request' | 'checkContinue', listener: RequestListener): this;
  once(event: string | symbol, listener: (...args: any[]) => void): this;
  constructor(options?: ServerOptions, listener?: RequestListener);
  constructor(listener?: RequestListener);
  /** The app underneath, for routes besides the framework's, such as WebSocket routes. */
  readonly app: TemplatedApp;
  /** Whether the server is listening. */
  readonly listening: boolean;
  /** Milliseconds without activity after which a request emits `timeout`; 0 for none. */
  timeout: number;
  /** The limit `head_timeout`, in milliseconds. Set it before `listen`. */
  headersTimeout: number | undefined;
  /** The limit `idle_timeout`, in milliseconds. Set it before `listen`. */
  keepAliveTimeout: number | undefined;
  /** The limit `field_section_bytes`, in bytes. Set it before `listen`. */
  maxHeaderSize: number | undefined;
  /** The limit `field_lines`, in lines. Set it before `listen`. */
  maxHeadersCount: number | undefined;
  /** Without effect. */
  requestTimeout: number;
  /** Without effect. */
  maxRequestsPerSocket: number;
  /** Listens on a port, 0 for any free one. Emits `listening`, or `error` if it cannot. */
  listen(port?: number, host?: string, callback?: () => void): this;
  listen(port?: number, host?: string, backlog?: number, callback?: () => void): this;
  listen(port?: number, callback?: () => void): this;
  listen(callback?: () => void): this;
  /** Listens with options. `reusePort`: whether threads of this process may share the port. */
  listen(options: ListenOptions & { reusePort?: boolean }, callback?: () => void): this;
  /** Returns the address and port; `null` if the server is not listening. */
  address(): AddressInfo | null;
  /**
   * Stops accepting connections, closes idle ones, and lets open requests finish, without a time
   * limit. Calls the callback and emits `close` when all connections have ended.
   */
  close(callback?: (error?: Error) => void): this;
  /** Closes all connections at once. */
  closeAllConnections(): void;
  /** Closes connections that have had a request and have none now. */
  closeIdleConnections(): void;
  /** Passes the number of open connections to the callback. */
  getConnections(callback: (error: Error | null, count: number) => void): this;
  /** Sets `timeout`, and adds the callback as a listener of `timeout`. */
  setTimeout(milliseconds: number, callback?: () => void): this;
  /** Replaces the certificate for new handshakes. */
  setSecureContext(options: TlsOptions): void;
  /** Sets the certificate of a host name, which may begin with `*.`. */
  addContext(hostname: string, options: TlsOptions): void;
  /** Keeps the process running while the server listens, which is the default. */
  ref(): this;
  /** Lets the process exit although the server listens. */
  unref(): this;
  /** Closes the server, and resolves when all connections have ended. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a server: HTTP/1.1, HTTP/2 and HTTP/3 on one port with a certificate, HTTP/1.1 in clear
 * text without one.
 */
export function createServer(listener?: RequestListener): Server;
export function createServer(options: ServerOptions, listener?: RequestListener): Server;

export { IncomingMessage, METHODS, STATUS_CODES, ServerResponse } from 'node:http';
