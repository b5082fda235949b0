import type { X509Certificate } from 'node:crypto';
import type { AppOptions, HttpProtocol } from '../..';
import type { FetchServer } from '.';

/** A request with the properties that srvx adds. */
export interface ServerRequest extends Request {
  /** The client's IP address. */
  readonly ip: string;
  /** The runtime, and the connection of the request. */
  readonly runtime: {
    name: 'pronghorn';
    pronghorn: {
      /** The HTTP version of the request. */
      protocol: HttpProtocol;
      /** Whether the request arrived in 0-RTT, where an attacker can replay it. */
      earlyData: boolean;
      /** The client's certificate, if the client was asked for one and sent it. */
      clientCertificate: X509Certificate | undefined;
      /** Whether the client's certificate is trusted. */
      authorized: boolean;
    };
  };
  /** Makes `close` wait for a promise. */
  readonly waitUntil: (promise: Promise<unknown>) => void;
  /** Properties of the program. */
  context?: Record<string, unknown>;
}

/** Options of `serve`, as srvx has them. */
export interface SrvxOptions {
  /** Answers each request. */
  fetch: (request: any) => Response | Promise<Response>;
  /** Functions called in order before `fetch`. */
  middleware?: ((
    request: any,
    next: () => Response | Promise<Response>,
  ) => Response | Promise<Response>)[];
  /** Functions called with the server before it starts. */
  plugins?: ((server: any) => void)[];
  /** Returns the response for an error of the handler or a middleware. */
  error?: (error: unknown) => Response | Promise<Response>;
  /** Port to listen on. Default: the environment variable `PORT`, or 3000. */
  port?: number | string;
  /** Host name or address to listen on. Default: the variable `HOST`, or all addresses. */
  hostname?: string;
  /** `http` ignores `key` and `cert`; `https` throws without them. Default: by `tls`. */
  protocol?: 'http' | 'https';
  /**
   * Certificate and key. `key`, `cert` and `ca` are PEM strings or file names. With `ca` clients
   * are asked for a certificate.
   */
  tls?: {
    key?: string;
    cert?: string;
    passphrase?: string;
    ca?: string | string[];
    requestCert?: boolean;
    rejectUnauthorized?: boolean;
  };
  /** Whether the server starts only when `serve()` is called. Default: false. */
  manual?: boolean;
  /** Whether the line with the URL is left out. Default: true if `TEST` is set. */
  silent?: boolean;
  /** Whether other threads of this process may share the port. Default: false. */
  reusePort?: boolean;
  /**
   * Whether SIGINT and SIGTERM close the server, with `gracefulTimeout` seconds (default: 5) for
   * open requests. Default: true, unless `CI` or `TEST` is set.
   */
  gracefulShutdown?: boolean | { gracefulTimeout?: number };
  /** Maximum size of a request body in bytes. A larger one is answered 413. */
  maxRequestBodySize?: number;
  /** More options of `Server`. */
  pronghorn?: AppOptions;
}

/** The server that `serve` returns, with the interface of srvx. */
export interface SrvxServer {
  /** Name of the runtime. */
  readonly runtime: 'pronghorn';
  /** The options given to `serve`. */
  readonly options: SrvxOptions;
  /** URL of the server; `undefined` if it is not listening. */
  readonly url: string | undefined;
  /** The server underneath. */
  readonly pronghorn: FetchServer;
  /** Makes `close` wait for a promise. */
  readonly waitUntil: (promise: Promise<unknown>) => void;
  /** Starts listening. Servers that are not `manual` do so by themselves. */
  serve(): Promise<SrvxServer>;
  /** Resolves when the server listens; rejects if it cannot. */
  ready(): Promise<SrvxServer>;
  /** Lets open requests finish, or with `closeAll` ends all connections at once. */
  close(closeAll?: boolean): Promise<void>;
}

/** Starts a server like `serve` of srvx, over HTTP/1.1, HTTP/2 and HTTP/3. */
export function serve(options: SrvxOptions): SrvxServer;

declare const FastResponse: typeof globalThis.Response;
/** The faster `Response`. */
export { FastResponse };
