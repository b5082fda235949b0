import type { Duplex, Readable, Writable } from 'node:stream';

/** What text and content are taken as. */
export type RecognizedString =
  | string
  | ArrayBuffer
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

/** The version of HTTP that a request came over. */
export type HttpProtocol = 'http/1.1' | 'h2' | 'h3';

/** Where a certificate and its key are: in files, or in memory. */
export interface TlsOptions {
  /** File with the private key in PEM form. */
  key_file_name?: string;
  /** File with the certificate and its chain in PEM form. */
  cert_file_name?: string;
  /** The private key itself, in PEM form. */
  key?: string | Buffer;
  /** The certificate and its chain themselves, in PEM form. */
  cert?: string | Buffer;
  /** Of the private key, if it is encrypted. */
  passphrase?: string;
  /** File with the certificates, in PEM form, of those who may vouch for clients. Clients are asked for a certificate then. */
  ca_file_name?: string;
  /** These certificates themselves, in PEM form. At `pronghorn/http` clients are asked only if `requestCert` says so, as in node:https. */
  ca?: string | Buffer | (string | Buffer)[];
  /** Whether clients are asked for a certificate. Without `ca` and `ca_file_name` those may vouch for them whom Node.js trusts. */
  request_cert?: boolean;
  /** The same under its name in node:https. */
  requestCert?: boolean;
  /** Whether clients that show none, or none that is trusted, get 403 in place of an answer. Default: true. */
  reject_unauthorized?: boolean;
  /** The same under its name in node:https. */
  rejectUnauthorized?: boolean;
  /** Taken, and without effect: TLS 1.2 and 1.3 are spoken with key exchange on elliptic curves. */
  dh_params_file_name?: string;
  /** Taken, and without effect: all ciphers that are spoken are safe. */
  ssl_ciphers?: string;
  /** Taken, and without effect. */
  ssl_prefer_low_memory_usage?: boolean;
}

export interface AppOptions extends TlsOptions {
  /** The `server` header of responses. Default: none. */
  server?: string;
  /** Requests before the handshake is done (0-RTT): none, those with safe methods (the default), or all. */
  earlyData?: 'off' | 'safe' | 'all';
  /** Congestion control of QUIC. Default: cubic. */
  congestion?: 'cubic' | 'newreno' | 'bbr';
  /** What clients may take, by the names of docs/limits.md, such as `{ request_body_bytes: '10MiB' }`. */
  limits?: Record<string, string | number>;
  /** There is no certificate yet: all come by `addServerName` or `missingServerName`. Without one it is an error to say nothing of that. */
  without_certificate?: boolean;
  /** Told what a handler has thrown, in place of a message on stderr. The process goes on. */
  onError?: (error: unknown, where: string) => void;
}

/** A request. It can be read only while its handler runs, before the first await. */
export interface HttpRequest {
  /** The value of a header, by its name in lower case; '' if there is none. Several lines are joined. */
  getHeader(lowerCaseKey: RecognizedString): string;
  /** The value of a parameter of the route, by its index or name. */
  getParameter(key: number | string): string | undefined;
  /** The path, without the query. */
  getUrl(): string;
  /** The method in lower case. */
  getMethod(): string;
  getCaseSensitiveMethod(): string;
  /** The query as it came, without its question mark. */
  getQuery(): string;
  /** The decoded value of a key of the query: '' if it has none, `undefined` if there is no such key or its value is malformed. */
  getQuery(key: string): string | undefined;
  getProtocol(): HttpProtocol;
  /** The name that the client asked for in TLS (SNI), in lower case; '' in clear text, and if it gave none, as for a URL with an address. */
  getServerName(): string;
  forEach(callback: (key: string, value: string) => void): void;
  /** Leaves the request to the next route that matches. */
  setYield(isYielding: boolean): this;
}

/** A response. It can be used until `end`, a `tryEnd` that completes it, `close`, or its abort. */
export interface HttpResponse {
  /** Such as '404 Not Found'; '200 OK' if it is not called. */
  writeStatus(status: RecognizedString): this;
  writeHeader(key: RecognizedString, value: RecognizedString): this;
  /** Sends 103 (Early Hints): `link` headers, or an object of headers. */
  writeEarlyHints(hints: string | string[] | Record<string, string | string[]>): this;
  /** Sends the head. */
  beginWrite(): this;
  /** Adds content. False if there is no room for more: wait for `onWritable`. */
  write(chunk: RecognizedString): boolean;
  end(body?: RecognizedString, closeConnection?: boolean): this;
  /** Ends without content; the length is announced, as for HEAD. */
  endWithoutBody(reportedContentLength?: number | bigint, closeConnection?: boolean): this;
  /** Sends what there is room for: `[all of it was taken, the response is complete]`. */
  tryEnd(fullBodyOrChunk: RecognizedString, totalSize?: number): [ok: boolean, done: boolean];
  /** Bytes of content taken so far. */
  getWriteOffset(): number;
  onWritable(handler: (offset: number) => boolean | undefined | void): this;
  /** Called when the client has left. Needed wherever the response is not complete when the handler returns. */
  onAborted(handler: () => void): this;
  /** Content as it comes, also what comes after `end`. */
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): this;
  /** The same, with how many bytes may still come: 0n with the last. */
  onDataV2(handler: (chunk: ArrayBuffer, maxRemainingBodyLength: bigint) => void): this;
  /** The same, with `null` when the client has left. */
  onDataOrAborted(
    handler: (res: HttpResponse | null, chunk: ArrayBuffer, maxRemainingBodyLength: bigint) => void,
  ): this;
  /** All of the content at once, or `null` if there is more than `maxSize`. */
  collectBody(maxSize: number, handler: (fullBody: ArrayBuffer | null) => void): this;
  maxRemainingBodyLength(): bigint;
  /** Holds the client back. */
  pause(): this;
  resume(): this;
  /** Ends without a response: resets the stream, over HTTP/1.1 closes the connection. Calls `onAborted`. */
  close(): this;
  /** Groups what the callback writes. */
  cork(callback: (res: HttpResponse) => void): this;
  /**
   * Grants a WebSocket connection, and calls its `open` handler; the response has ended then. The texts are those of the request's
   * `sec-websocket-key`, `sec-websocket-protocol` (of which the first is taken) and `sec-websocket-extensions` headers; without the last
   * nothing is compressed. Headers that were written before go with it.
   */
  upgrade<UserData>(
    userData: UserData,
    secWebSocketKey: RecognizedString,
    secWebSocketProtocol: RecognizedString,
    secWebSocketExtensions: RecognizedString,
    context: us_socket_context_t,
  ): void;
  /** Grants a WebTransport session, and calls its `open` handler; the response has ended then. */
  upgrade<UserData>(userData: UserData, context: wt_session_context_t): void;
  /** 4 bytes, or 16. */
  getRemoteAddress(): ArrayBuffer;
  getRemoteAddressAsText(): ArrayBuffer;
  getRemotePort(): number;
  /** Empty: see docs/node/differences.md. */
  getProxiedRemoteAddress(): ArrayBuffer;
  /** Empty: see docs/node/differences.md. */
  getProxiedRemoteAddressAsText(): ArrayBuffer;
  /** 0: see docs/node/differences.md. */
  getProxiedRemotePort(): number;
  getProtocol(): HttpProtocol;
  /** As that of the request. */
  getServerName(): string;
  /** The certificate that the client has shown, in PEM form; '' if it was not asked (`ca_file_name`, `request_cert`), or showed none. */
  getX509Certificate(): string;
  /** Yours. */
  [key: string]: any;
}

/** A connection, as `filter` tells of it. */
export interface FilteredConnection {
  getRemoteAddressAsText(): ArrayBuffer;
  getRemotePort(): number;
}

/** What listens. */
export interface us_listen_socket {
  readonly __us_listen_socket: never;
}

/** What it returns is of no interest, unless it is a promise that rejects. */
export type Handler = (res: HttpResponse, req: HttpRequest) => unknown;
/** A function, what `DeclarativeResponse.end` returned, or `null` to remove the route. */
export type RouteHandler = Handler | ArrayBuffer | null;
/** `error` says why, where there is no socket. */
export type ListenCallback = (listenSocket: us_listen_socket | false, error?: Error & { code?: string }) => void;

/** What an upgrade handler passes on to `res.upgrade`. */
export interface us_socket_context_t {
  readonly __us_socket_context_t: never;
}

/** A WebSocket connection, from its `open` handler to its `close` handler. It has what `res.upgrade` was given as user data. */
export type WebSocket<UserData> = UserData & WebSocketMethods<UserData>;

export interface WebSocketMethods<UserData> {
  /** 1: sent, 0: it waits behind what the client has not taken, 2: dropped, because more than `maxBackpressure` waits. */
  send(message: RecognizedString, isBinary?: boolean, compress?: boolean): number;
  /** The first part of a message. Other messages wait until the last part is sent. */
  sendFirstFragment(message: RecognizedString, isBinary?: boolean, compress?: boolean): number;
  sendFragment(message: RecognizedString, compress?: boolean): number;
  sendLastFragment(message: RecognizedString, compress?: boolean): number;
  /** At most 125 bytes. */
  ping(message?: RecognizedString): number;
  /** Bytes that wait to be sent. If there are any, `drain` is called when they have gone. */
  getBufferedAmount(): number;
  /** Closes after what was sent; calls `close`. */
  end(code?: number, shortMessage?: RecognizedString): void;
  /** Ends the connection at once; calls `close` with 1006. */
  close(): void;
  subscribe(topic: RecognizedString): boolean;
  /** Whether it was subscribed. */
  unsubscribe(topic: RecognizedString): boolean;
  isSubscribed(topic: RecognizedString): boolean;
  getTopics(): string[];
  iterateTopics(callback: (topic: string) => void): void;
  /** To all others that have subscribed; whether there are any. */
  publish(topic: RecognizedString, message: RecognizedString, isBinary?: boolean, compress?: boolean): boolean;
  cork(callback: (ws: WebSocket<UserData>) => void): this;
  getUserData(): UserData;
  /** 4 bytes, or 16. */
  getRemoteAddress(): ArrayBuffer;
  getRemoteAddressAsText(): ArrayBuffer;
  getRemotePort(): number;
  /** Empty: see docs/node/differences.md. */
  getProxiedRemoteAddress(): ArrayBuffer;
  /** Empty: see docs/node/differences.md. */
  getProxiedRemoteAddressAsText(): ArrayBuffer;
  /** 0: see docs/node/differences.md. */
  getProxiedRemotePort(): number;
  getProtocol(): HttpProtocol;
}

/** What the connections of a route do, and what their clients may take. */
export interface WebSocketBehavior<UserData> {
  /** Which compression is agreed on with clients that know it; messages have to ask for it. Default: DISABLED. */
  compression?: CompressOptions;
  /** Bytes of a message; a client that sends more is closed. Default: 16384. */
  maxPayloadLength?: number;
  /** Seconds that a client may be silent, 0 for ever. Default: 120. */
  idleTimeout?: number;
  /** Bytes that may wait for a client that does not take them; then messages are dropped. 0: any. Default: 65536. */
  maxBackpressure?: number;
  /** Closes such a client. Default: false. */
  closeOnBackpressureLimit?: boolean;
  /** Asks clients that are silent whether they are there. Default: true. */
  sendPingsAutomatically?: boolean;
  /** Minutes until the client has to connect again, up to 239; 0 for ever, the default. */
  maxLifetime?: number;
  /** Answers the request, with `res.upgrade` or otherwise, now or later. Without it all are granted. */
  upgrade?: (res: HttpResponse, req: HttpRequest, context: us_socket_context_t) => unknown;
  open?: (ws: WebSocket<UserData>) => unknown;
  message?: (ws: WebSocket<UserData>, message: ArrayBuffer, isBinary: boolean) => unknown;
  /** A message that was not sent, because too much waits. */
  dropped?: (ws: WebSocket<UserData>, message: ArrayBuffer, isBinary: boolean) => unknown;
  /** What waited has gone, or half of it. */
  drain?: (ws: WebSocket<UserData>) => unknown;
  ping?: (ws: WebSocket<UserData>, message: ArrayBuffer) => unknown;
  pong?: (ws: WebSocket<UserData>, message: ArrayBuffer) => unknown;
  /** It has ended, by whichever side. Nothing can be sent any more. */
  close?: (ws: WebSocket<UserData>, code: number, message: ArrayBuffer) => unknown;
  subscription?: (ws: WebSocket<UserData>, topic: ArrayBuffer, newCount: number, oldCount: number) => unknown;
}

/** What an upgrade handler of `app.wt` passes on to `res.upgrade`. */
export interface wt_session_context_t {
  readonly __wt_session_context_t: never;
}

/** A WebTransport session, from its `open` handler to its `close` handler. It has what `res.upgrade` was given as user data. */
export type WebTransportSession<UserData> = UserData & WebTransportSessionMethods<UserData>;

/**
 * Streams are those of node:stream. `destroy` resets and stops one with the code that `resetCode` was set to; where the client has done
 * that, `error` is emitted with its code as `streamErrorCode`, and nothing happens if nobody listens to it.
 * A client that wants no more of what is sent on a `Duplex` ends that direction alone: `stopped` is emitted with the error, callbacks of
 * `write` and `end` get it, and reading goes on; `error` follows when what is read has ended.
 */
export type WebTransportStream<Kind> = Kind & { resetCode?: number };

export interface WebTransportSessionMethods<UserData> {
  /** What is written waits until the client allows another stream. */
  createBidirectionalStream(): WebTransportStream<Duplex>;
  createUnidirectionalStream(): WebTransportStream<Writable>;
  /** Sends what arrives once or not at all. False if it is too large, or the client takes none. */
  sendDatagram(data: RecognizedString): boolean;
  /** Bytes that a datagram can carry now; 0 if the client takes none. */
  getMaxDatagramSize(): number;
  /** Tells the client that the session should come to its end. */
  drain(): void;
  /** Closes the session and its streams; calls `close`. */
  close(code?: number, reason?: RecognizedString): void;
  getUserData(): UserData;
  /** 4 bytes, or 16. */
  getRemoteAddress(): ArrayBuffer;
  getRemoteAddressAsText(): ArrayBuffer;
  getRemotePort(): number;
}

export interface WebTransportBehavior<UserData> {
  /** Answers the request, with `res.upgrade` or otherwise, now or later. Without it all are granted. */
  upgrade?: (res: HttpResponse, req: HttpRequest, context: wt_session_context_t) => unknown;
  open?: (session: WebTransportSession<UserData>) => unknown;
  /** The client has opened a stream: a `Duplex`, or a `Readable` if it is one way. Without a handler they are refused. */
  stream?: (session: WebTransportSession<UserData>, stream: WebTransportStream<Duplex | Readable>) => unknown;
  datagram?: (session: WebTransportSession<UserData>, data: ArrayBuffer) => unknown;
  /** The client wants the session to come to its end, or the server is being closed. */
  draining?: (session: WebTransportSession<UserData>) => unknown;
  /** It has ended, by whichever side. */
  close?: (session: WebTransportSession<UserData>, code: number, reason: ArrayBuffer) => unknown;
}

export interface TemplatedApp {
  get(pattern: RecognizedString, handler: RouteHandler): this;
  post(pattern: RecognizedString, handler: RouteHandler): this;
  put(pattern: RecognizedString, handler: RouteHandler): this;
  patch(pattern: RecognizedString, handler: RouteHandler): this;
  del(pattern: RecognizedString, handler: RouteHandler): this;
  options(pattern: RecognizedString, handler: RouteHandler): this;
  head(pattern: RecognizedString, handler: RouteHandler): this;
  connect(pattern: RecognizedString, handler: RouteHandler): this;
  trace(pattern: RecognizedString, handler: RouteHandler): this;
  /** All methods, after the routes of each. */
  any(pattern: RecognizedString, handler: RouteHandler): this;
  /** WebSocket connections over all protocols. These routes go before the others; `null` removes one. */
  ws<UserData>(pattern: RecognizedString, behavior: WebSocketBehavior<UserData> | null): this;
  /** WebTransport sessions over HTTP/3. To be called before `listen`; `null` removes a route. */
  wt<UserData>(pattern: RecognizedString, behavior: WebTransportBehavior<UserData> | null): this;
  /** To all that have subscribed to exactly this topic; whether there are any. */
  publish(topic: RecognizedString, message: RecognizedString, isBinary?: boolean, compress?: boolean): boolean;
  numSubscribers(topic: RecognizedString): number;
  /** Without a callback it throws where it cannot listen. */
  listen(port: number, callback?: ListenCallback): this;
  listen(port: number, options: number, callback: ListenCallback): this;
  listen(host: string, port: number, callback?: ListenCallback): this;
  listen(host: string, port: number, options: number, callback: ListenCallback): this;
  /** The certificate for a host name, which may begin with `*.`; given again, it takes the place of the former. */
  addServerName(hostname: string, options: TlsOptions): this;
  removeServerName(hostname: string): this;
  /** May call `addServerName` before it returns. */
  missingServerName(callback: (hostname: string) => void): this;
  /** The routes that are added next are for this host name alone; without a name: for all. */
  domain(hostname?: string): this;
  /** Another certificate, for handshakes from now on. */
  setCertificate(options: TlsOptions): this;
  /** 1 for a connection that opens, -1 for one that has ended. */
  filter(callback: (connection: FilteredConnection, count: 1 | -1) => void): this;
  /** Ends all at once. */
  close(): this;
  /** Tells clients, finishes what runs within so many milliseconds, and resolves when all has ended. */
  close(options: { timeout: number }): Promise<void>;
  /** Counters of all that listens. */
  getStatistics(): Record<string, number>;
}

/** HTTP/1.1 in clear text. */
export function App(options?: AppOptions): TemplatedApp;
/** HTTP/1.1 and HTTP/2 over TLS. */
export function SSLApp(options?: AppOptions): TemplatedApp;
/** HTTP/3. */
export function H3App(options?: AppOptions): TemplatedApp;
/** HTTP/1.1, HTTP/2 and HTTP/3 on one port, with `alt-svc`. */
export function Server(options?: AppOptions): TemplatedApp;

/** Takes no new connections; those that are open go on. */
export function us_listen_socket_close(listenSocket: us_listen_socket): void;
/** The port that is bound, or -1 when it has ended. */
export function us_socket_local_port(listenSocket: us_listen_socket | false): number;

export interface MultipartField {
  data: ArrayBuffer;
  name: string;
  type?: string;
  filename?: string;
}

/** The parts of a body of multipart/form-data, or `undefined` if it is none. */
export function getParts(body: RecognizedString, contentType: string): MultipartField[] | undefined;

/** A certificate for development. It can be given to `SSLApp`, `H3App`, `Server` and `setCertificate` as it is, or spread into options. */
export interface DevelopmentCertificate {
  key_file_name: string;
  cert_file_name: string;
  /** SHA-256 of the public key in base64, as Chromium's --ignore-certificate-errors-spki-list takes it. */
  readonly spkiSha256: string;
  /** SHA-256 of the certificate in base64: the value of `serverCertificateHashes` of a browser's WebTransport. */
  readonly sha256: string;
  readonly validTo: Date;
  /** What Chromium has to be started with to take it, and to speak HTTP/3 at once on this port of localhost. */
  chromiumFlags(port: number): string[];
}

/**
 * The certificate for development of this user, for `localhost`, the loopback addresses and this machine's name. It is kept in `folder` (by
 * default `pronghorn` in the user's data folder, as the program `pronghorn` has it), and made anew when it runs out within a day: it is valid
 * for 13 days. Not for the open internet: nobody has signed it.
 */
export function developmentCertificate(options?: { folder?: string }): DevelopmentCertificate;

/** A response that is computed without JavaScript. */
export class DeclarativeResponse {
  writeHeader(key: RecognizedString, value: RecognizedString): this;
  /** The content of the request, up to 1 MiB: more is answered 413. */
  writeBody(): this;
  writeQueryValue(key: string): this;
  writeHeaderValue(key: string): this;
  writeParameterValue(key: string): this;
  write(value: RecognizedString): this;
  /** What is given to a route as its handler. */
  end(value?: RecognizedString): ArrayBuffer;
}

/** Threads of this process may share the port, and the other workers of a cluster (`node:cluster`, PM2). */
export const LIBUS_LISTEN_DEFAULT: 0;
/** Nobody else has the port. */
export const LIBUS_LISTEN_EXCLUSIVE_PORT: 1;

/** Choices for `compression`: one to compress and one to decompress, added up. */
export type CompressOptions = number;
export const DISABLED: 0;
export const SHARED_COMPRESSOR: 1;
export const SHARED_DECOMPRESSOR: 256;
export const DEDICATED_COMPRESSOR_3KB: 145;
export const DEDICATED_COMPRESSOR_4KB: 146;
export const DEDICATED_COMPRESSOR_8KB: 163;
export const DEDICATED_COMPRESSOR_16KB: 180;
export const DEDICATED_COMPRESSOR_32KB: 197;
export const DEDICATED_COMPRESSOR_64KB: 214;
export const DEDICATED_COMPRESSOR_128KB: 231;
export const DEDICATED_COMPRESSOR_256KB: 248;
export const DEDICATED_COMPRESSOR: 248;
export const DEDICATED_DECOMPRESSOR_512B: 2304;
export const DEDICATED_DECOMPRESSOR_1KB: 2560;
export const DEDICATED_DECOMPRESSOR_2KB: 2816;
export const DEDICATED_DECOMPRESSOR_4KB: 3072;
export const DEDICATED_DECOMPRESSOR_8KB: 3328;
export const DEDICATED_DECOMPRESSOR_16KB: 3584;
export const DEDICATED_DECOMPRESSOR_32KB: 3840;
export const DEDICATED_DECOMPRESSOR: 3840;
