import type * as http from 'node:http';
import type { EventEmitter } from 'node:events';
import type { AddressInfo, ListenOptions } from 'node:net';
import type { Duplex } from 'node:stream';
import type { AppOptions, TemplatedApp, TlsOptions } from '../..';

/** Options of `Server`, or without a certificate of `App`, and those of node:http that have a meaning. */
export interface ServerOptions extends AppOptions {
  IncomingMessage?: typeof http.IncomingMessage;
  ServerResponse?: typeof http.ServerResponse;
  joinDuplicateHeaders?: boolean;
  /** Milliseconds: the limit `head_timeout`. */
  headersTimeout?: number;
  /** Milliseconds: the limit `idle_timeout`. */
  keepAliveTimeout?: number;
  /** Bytes: the limit `field_section_bytes`. */
  maxHeaderSize?: number;
  /** Lines: the limit `field_lines`. */
  maxHeadersCount?: number;
  // Taken, and without effect: docs/node/frameworks.md says why.
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

export type RequestListener = (req: http.IncomingMessage, res: http.ServerResponse) => void;

/**
 * What listeners of `upgrade` write their answer into, as bytes of HTTP/1.1, over all protocols. From a 101 on it is the other protocol, in both
 * directions; content of any other answer is that of an ordinary response. Of `net.Socket` it has what does not need a descriptor.
 */
export interface UpgradeSocket extends Duplex {
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly remoteFamily: string;
  readonly localAddress: string | undefined;
  readonly localPort: number | undefined;
  readonly localFamily: string | undefined;
  readonly encrypted: boolean;
  readonly authorized: boolean;
  /** `http/1.1`, `h2` or `h3`; false in clear text. */
  readonly alpnProtocol: string | false;
  /** The name that the client asked for in TLS; false if it gave none. */
  readonly servername: string | false | undefined;
  /** Whether the request came in 0-RTT. */
  readonly earlyData: boolean;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  readonly connecting: false;
  readonly pending: false;
  readonly readyState: 'open' | 'readOnly' | 'writeOnly' | 'closed';
  /** Milliseconds; 0 for none. */
  readonly timeout: number;
  address(): AddressInfo | Record<string, never>;
  getProtocol(): string | null;
  /** Emits `timeout` when nothing has come or gone for so many milliseconds. */
  setTimeout(milliseconds: number, callback?: () => void): this;
  /** Without effect, as `setKeepAlive`, `ref` and `unref`: the connection is the engine's. */
  setNoDelay(noDelay?: boolean): this;
  setKeepAlive(enable?: boolean, initialDelay?: number): this;
  ref(): this;
  unref(): this;
  destroySoon(): void;
  /** Resets the stream; over HTTP/1.1 closes the connection. What waits is lost. */
  resetAndDestroy(): this;
}

/** `head` is empty: what the client sends comes as `data`. */
export type UpgradeListener = (req: http.IncomingMessage, socket: UpgradeSocket, head: Buffer) => void;

export class Server extends EventEmitter {
  on(event: 'upgrade', listener: UpgradeListener): this;
  on(event: 'request' | 'checkContinue', listener: RequestListener): this;
  on(event: string | symbol, listener: (...args: any[]) => void): this;
  once(event: 'upgrade', listener: UpgradeListener): this;
  once(event: 'request' | 'checkContinue', listener: RequestListener): this;
  once(event: string | symbol, listener: (...args: any[]) => void): this;
  constructor(options?: ServerOptions, listener?: RequestListener);
  constructor(listener?: RequestListener);
  /** The application underneath, for routes that are none of the framework's. */
  readonly app: TemplatedApp;
  readonly listening: boolean;
  timeout: number;
  headersTimeout: number | undefined;
  keepAliveTimeout: number | undefined;
  maxHeaderSize: number | undefined;
  maxHeadersCount: number | undefined;
  /** Without effect. */
  requestTimeout: number;
  /** Without effect. */
  maxRequestsPerSocket: number;
  listen(port?: number, host?: string, callback?: () => void): this;
  listen(port?: number, host?: string, backlog?: number, callback?: () => void): this;
  listen(port?: number, callback?: () => void): this;
  listen(callback?: () => void): this;
  /** `reusePort`: whether other threads of this process may listen on the port as well. */
  listen(options: ListenOptions & { reusePort?: boolean }, callback?: () => void): this;
  address(): AddressInfo | null;
  close(callback?: (error?: Error) => void): this;
  closeAllConnections(): void;
  closeIdleConnections(): void;
  getConnections(callback: (error: Error | null, count: number) => void): this;
  setTimeout(milliseconds: number, callback?: () => void): this;
  setSecureContext(options: TlsOptions): void;
  addContext(hostname: string, options: TlsOptions): void;
  ref(): this;
  unref(): this;
  [Symbol.asyncDispose](): Promise<void>;
}

/** HTTP/1.1, HTTP/2 and HTTP/3 with a certificate, HTTP/1.1 without one. */
export function createServer(listener?: RequestListener): Server;
export function createServer(options: ServerOptions, listener?: RequestListener): Server;

export { IncomingMessage, METHODS, STATUS_CODES, ServerResponse } from 'node:http';
