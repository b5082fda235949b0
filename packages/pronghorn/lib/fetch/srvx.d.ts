import type { X509Certificate } from 'node:crypto';
import type { AppOptions, HttpProtocol } from '../..';
import type { FetchServer } from '.';

/** A request with what srvx adds. */
export interface ServerRequest extends Request {
  readonly ip: string;
  readonly runtime: {
    name: 'pronghorn';
    pronghorn: {
      protocol: HttpProtocol;
      earlyData: boolean;
      /** The certificate that the client has shown, if it was asked for one. */
      clientCertificate: X509Certificate | undefined;
      /** Whether that is trusted. */
      authorized: boolean;
    };
  };
  readonly waitUntil: (promise: Promise<unknown>) => void;
  context?: Record<string, unknown>;
}

export interface SrvxOptions {
  fetch: (request: any) => Response | Promise<Response>;
  middleware?: ((request: any, next: () => Response | Promise<Response>) => Response | Promise<Response>)[];
  plugins?: ((server: any) => void)[];
  error?: (error: unknown) => Response | Promise<Response>;
  /** `PORT`, or 3000. */
  port?: number | string;
  /** `HOST`, or all addresses. */
  hostname?: string;
  protocol?: 'http' | 'https';
  /** `key`, `cert` and `ca`: PEM, or names of files. Clients are asked for a certificate where there is a `ca`. */
  tls?: {
    key?: string;
    cert?: string;
    passphrase?: string;
    ca?: string | string[];
    requestCert?: boolean;
    rejectUnauthorized?: boolean;
  };
  manual?: boolean;
  silent?: boolean;
  reusePort?: boolean;
  gracefulShutdown?: boolean | { gracefulTimeout?: number };
  /** More is answered 413. */
  maxRequestBodySize?: number;
  /** Options of `Server`. */
  pronghorn?: AppOptions;
}

export interface SrvxServer {
  readonly runtime: 'pronghorn';
  readonly options: SrvxOptions;
  readonly url: string | undefined;
  readonly pronghorn: FetchServer;
  readonly waitUntil: (promise: Promise<unknown>) => void;
  serve(): Promise<SrvxServer>;
  ready(): Promise<SrvxServer>;
  close(closeAll?: boolean): Promise<void>;
}

/** What `serve` of srvx does, over all protocols. */
export function serve(options: SrvxOptions): SrvxServer;

declare const FastResponse: typeof globalThis.Response;
export { FastResponse };
