import type { Duplex, Readable, Writable } from 'node:stream';

/** Input type of text and body arguments. Strings are sent as UTF-8, buffers as they are. */
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

/** The HTTP version of a request. */
export type HttpProtocol = 'http/1.1' | 'h2' | 'h3';

/** A certificate and its key, as files or in memory, and the handling of client certificates. */
export interface TlsOptions {
  /** File with the private key in PEM form. */
  key_file_name?: string;
  /** File with the certificate and its chain in PEM form. */
  cert_file_name?: string;
  /** The private key in PEM form. */
  key?: string | Buffer;
  /** The certificate and its chain in PEM form. */
  cert?: string | Buffer;
  /** Passphrase of the private key, if it is encrypted. */
  passphrase?: string;
  /**
   * File with the certificate authorities that may issue client certificates, in PEM form. With
   * this option clients are asked for a certificate.
   */
  ca_file_name?: string;
  /**
   * The same certificate authorities in memory, in PEM form. With `pronghorn/http` clients are
   * asked for a certificate only if `requestCert` is set, as with node:https.
   */
  ca?: string | Buffer | (string | Buffer)[];
  /**
   * Whether clients are asked for a certificate. Default: true with `ca` or `ca_file_name`,
   * otherwise false. Without `ca` and `ca_file_name` the trust roots of Node.js apply.
   */
  request_cert?: boolean;
  /** Alias of `request_cert`, under its name in node:https. */
  requestCert?: boolean;
  /**
   * Whether requests of clients without a trusted certificate are answered 403 before any handler.
   * Default: true.
   */
  reject_unauthorized?: boolean;
  /** Alias of `reject_unauthorized`, under its name in node:https. */
  rejectUnauthorized?: boolean;
  /** Accepted, without effect: key exchange always uses elliptic curves. */
  dh_params_file_name?: string;
  /** Accepted, without effect: no weak cipher is offered. */
  ssl_ciphers?: string;
  /** Accepted, without effect. */
  ssl_prefer_low_memory_usage?: boolean;
}

/** Options of `App`, `SSLApp`, `H3App` and `Server`. An unknown option throws a `TypeError`. */
export interface AppOptions extends TlsOptions {
  /** Value of the `server` header of responses. Default: no header. */
  server?: string;
  /**
   * Requests answered before the handshake is complete (0-RTT): none (`off`), those with a safe
   * method (`safe`, the default: others get 425; `hold`: others wait), or `all`.
   */
  earlyData?: 'off' | 'safe' | 'hold' | 'all';
  /** Congestion control algorithm of QUIC. Default: `cubic`. */
  congestion?: 'cubic' | 'newreno' | 'bbr';
  /** Limits by their names in docs/limits.md, such as `{ request_body_bytes: '10MiB' }`. */
  limits?: Record<string, string | number>;
  /**
   * Whether the app starts without a certificate, because all of them come from `addServerName` or
   * `missingServerName`. Without a certificate and without this option, `SSLApp`, `H3App` and
   * `Server` throw a `TypeError`.
   */
  without_certificate?: boolean;
  /**
   * Called with the error that a handler threw, or that its promise rejected with, and the place,
   * such as `GET /users/:id`. Default: a message on standard error. The process continues.
   */
  onError?: (error: unknown, where: string) => void;
}

/**
 * A request. It can be read only while its handler runs, before the first `await`; later every
 * method throws.
 */
export interface HttpRequest {
  /**
   * Returns the value of a header, by its name in lower case; '' if the header is missing. Several
   * lines are joined by `, ` (`cookie` by `; `).
   */
  getHeader(lowerCaseKey: RecognizedString): string;
  /** Returns a route parameter, by its index or name. It is not percent-decoded. */
  getParameter(key: number | string): string | undefined;
  /** Returns the path without the query. It is not percent-decoded. */
  getUrl(): string;
  /** Returns the method in lower case. */
  getMethod(): string;
  /** Returns the method as the client sent it, such as `GET`. */
  getCaseSensitiveMethod(): string;
  /** Returns the raw query without its question mark; '' if there is none. */
  getQuery(): string;
  /**
   * Returns the decoded value of the first occurrence of a query key: '' if the key has no value,
   * `undefined` if the key is missing or its value is malformed.
   */
  getQuery(key: string): string | undefined;
  /** Returns the HTTP version of the request. */
  getProtocol(): HttpProtocol;
  /**
   * Returns the server name of the TLS handshake (SNI) in lower case; '' in clear text, and if the
   * client sent none, as for a URL with an IP address.
   */
  getServerName(): string;
  /** Calls `callback` once for each header name, in lower case, with the joined value. */
  forEach(callback: (key: string, value: string) => void): void;
  /**
   * Passes the request to the next matching route when the handler returns. Without another match
   * the answer is 404.
   */
  setYield(isYielding: boolean): this;
}

/**
 * A response. It can be used until `end`, a `tryEnd` that completes it, `close`, or its abort;
 * after that every method throws, apart from `pause` and `resume` while the request body is read.
 *
 * Order of calls: `writeStatus`, then `writeHeader`, then the body with `end`, `tryEnd` or `write`.
 * The status and headers cannot be changed once `write`, `tryEnd` or `beginWrite` has sent them.
 */
export interface HttpResponse {
  /**
   * Sets the status, such as `'404 Not Found'`, from 200 to 599. Default: `'200 OK'`. The last call
   * counts. The reason phrase is replaced by the registered one, and HTTP/2 and HTTP/3 have none.
   */
  writeStatus(status: RecognizedString): this;
  /**
   * Adds a header line; a name that is written twice is sent twice. Whitespace around the value is
   * removed. Throws if the name or the value is invalid.
   */
  writeHeader(key: RecognizedString, value: RecognizedString): this;
  /** Sends a 103 (Early Hints) response with `link` headers, or with the headers of an object. */
  writeEarlyHints(hints: string | string[] | Record<string, string | string[]>): this;
  /** Sends the status and headers before the first part of the body. */
  beginWrite(): this;
  /**
   * Sends a part of a body whose length is not known, and the status and headers before the first
   * part. End the body with `end`.
   *
   * The whole chunk is accepted in any case. The result says whether to continue: `false` means
   * that 128 KiB or more wait for the client, or that it has left. Stop then, and continue in
   * `onWritable`, which is called when no more than 32 KiB wait. Memory grows without bound if the
   * program keeps writing.
   */
  write(chunk: RecognizedString): boolean;
  /**
   * Sends the response with this body, or the last part of a body that `write` began. With
   * `closeConnection` an HTTP/1.1 connection is closed after it; HTTP/2 and HTTP/3 connections stay
   * open.
   */
  end(body?: RecognizedString, closeConnection?: boolean): this;
  /** Ends the response without a body. `reportedContentLength` is announced, as for HEAD. */
  endWithoutBody(reportedContentLength?: number | bigint, closeConnection?: boolean): this;
  /**
   * Sends as much of a body of known length as fits, and returns `[ok, done]`. The first call
   * announces `totalSize` (default: the size of the chunk) as `content-length`.
   *
   * - `ok`: the whole chunk was accepted. If it is false, only a part was: call `tryEnd` again in
   *   `onWritable`, with the rest of the body from `getWriteOffset()` on.
   * - `done`: `totalSize` bytes were accepted and the response has ended. Do not use it any more.
   *
   * At most 128 KiB wait for the client, so a large body that is in memory or on disk already is
   * not copied into a buffer. Throws if `totalSize` is not a non-negative integer.
   */
  tryEnd(fullBodyOrChunk: RecognizedString, totalSize?: number): [ok: boolean, done: boolean];
  /**
   * Returns the number of bytes of the body that `write` and `tryEnd` have accepted so far: the
   * offset at which the next `tryEnd` continues. Accepted bytes may still wait for the client.
   */
  getWriteOffset(): number;
  /**
   * Sets the handler that is called when the response can take more, after `write` returned false
   * or `tryEnd` returned `ok` false. It is called with `getWriteOffset()`, when no more than 32 KiB
   * wait for the client, and not if the client has left. A second call replaces the handler. Its
   * result is ignored.
   */
  onWritable(handler: (offset: number) => boolean | undefined | void): this;
  /**
   * Adds a handler that is called when the response can no longer be completed: the client closed
   * the connection or reset the stream, `close()` was called, or the server was closed. After that
   * every method of the response throws, so set a flag here and check it before each use.
   *
   * Required, before the first `await`, wherever the response is not complete when the route's
   * handler returns; otherwise the request is answered 500 and the error is reported. Each call
   * adds a handler. It is not called for a response that was completed.
   */
  onAborted(handler: () => void): this;
  /**
   * Reads the request body. The handler is called with each chunk as it arrives, and with `isLast`
   * for the last one, which may be empty; once, with an empty chunk, if there is no body. The
   * chunks belong to the program. After `end`, reading continues until the body is complete, unless
   * it is paused or `closeConnection` was set. A second call replaces the handler.
   */
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): this;
  /** Reads the request body like `onData`, with the maximum of bytes to come: 0n with the last. */
  onDataV2(handler: (chunk: ArrayBuffer, maxRemainingBodyLength: bigint) => void): this;
  /**
   * Reads the request body like `onDataV2`, and is called with `null` in place of the response when
   * the client has left. Counts as `onAborted`.
   */
  onDataOrAborted(
    handler: (res: HttpResponse | null, chunk: ArrayBuffer, maxRemainingBodyLength: bigint) => void,
  ): this;
  /**
   * Reads the whole request body, and calls the handler with it, or with `null` as soon as it is
   * larger than `maxSize` bytes. The handler is not called if the client leaves.
   */
  collectBody(maxSize: number, handler: (fullBody: ArrayBuffer | null) => void): this;
  /**
   * Returns the maximum number of bytes of the request body that are still to come, from its
   * `content-length`: 0n without a body, `2n ** 64n - 1n` if the length is unknown.
   */
  maxRemainingBodyLength(): bigint;
  /**
   * Pauses reading of the request body, so that flow control holds the client back. A chunk that
   * was received already may still be delivered.
   */
  pause(): this;
  /** Resumes reading after `pause`. */
  resume(): this;
  /**
   * Aborts the response: resets the stream, or closes the connection over HTTP/1.1. Calls the
   * `onAborted` handlers before it returns.
   */
  close(): this;
  /**
   * Calls the callback at once, and passes what it does to this and other responses to the engine
   * together: fewer calls between JavaScript and the addon.
   *
   * It is never required. Handlers of this package run corked already; it helps in code that runs
   * later, after an `await` or in a timer, and completes several responses there. `write`, `tryEnd`
   * and `beginWrite` reach the engine at once, corked or not. Exceptions of the callback reach the
   * caller. Throws if the response has ended.
   */
  cork(callback: (res: HttpResponse) => void): this;
  /**
   * Accepts a WebSocket upgrade and calls the `open` handler; the response has ended then.
   * `userData` is copied to the connection. The strings are the request's `sec-websocket-key`,
   * `sec-websocket-protocol` (the first protocol of the list is selected) and
   * `sec-websocket-extensions` headers; without the last nothing is compressed. Headers that were
   * written before are sent with the upgrade. Throws if the key is invalid, after answering the
   * request.
   */
  upgrade<UserData>(
    userData: UserData,
    secWebSocketKey: RecognizedString,
    secWebSocketProtocol: RecognizedString,
    secWebSocketExtensions: RecognizedString,
    context: us_socket_context_t,
  ): void;
  /**
   * Accepts a WebTransport session and calls its `open` handler; the response has ended then.
   * `userData` is copied to the session.
   */
  upgrade<UserData>(userData: UserData, context: wt_session_context_t): void;
  /** Returns the client's IP address: 4 bytes for IPv4, 16 for IPv6. */
  getRemoteAddress(): ArrayBuffer;
  /** Returns the client's IP address as text, such as `127.0.0.1` or `::1`, in UTF-8. */
  getRemoteAddressAsText(): ArrayBuffer;
  /** Returns the client's port. */
  getRemotePort(): number;
  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddress(): ArrayBuffer;
  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddressAsText(): ArrayBuffer;
  /** Returns 0: the PROXY protocol is not read. */
  getProxiedRemotePort(): number;
  /** Returns the HTTP version of the request. */
  getProtocol(): HttpProtocol;
  /** Returns the server name of the TLS handshake, like `HttpRequest.getServerName`. */
  getServerName(): string;
  /**
   * Returns the client's certificate in PEM form; '' if the client was not asked for one
   * (`ca_file_name`, `request_cert`) or sent none.
   */
  getX509Certificate(): string;
  /** Properties of the program. */
  [key: string]: any;
}

/** A connection that was opened or closed, as given to the callback of `filter`. */
export interface FilteredConnection {
  /** Returns the client's IP address as text, such as `127.0.0.1` or `::1`, in UTF-8. */
  getRemoteAddressAsText(): ArrayBuffer;
  /** Returns the client's port. */
  getRemotePort(): number;
}

/** A listening socket. It is opaque: pass it to the `us_` functions. */
export interface us_listen_socket {
  readonly __us_listen_socket: never;
}

/**
 * A route's handler. A rejected promise is handled like an exception: the client gets 500, and
 * `onError` is called. Any other result is ignored.
 */
export type Handler = (res: HttpResponse, req: HttpRequest) => unknown;
/** A handler, the result of `DeclarativeResponse.end`, or `null` to remove the route. */
export type RouteHandler = Handler | ArrayBuffer | null;
/** The callback of `listen`, with the listening socket, or with `false` and the error. */
export type ListenCallback = (
  listenSocket: us_listen_socket | false,
  error?: Error & { code?: string },
) => void;

/** The context of a WebSocket upgrade. It is opaque: pass it to `res.upgrade`. */
export interface us_socket_context_t {
  readonly __us_socket_context_t: never;
}

/**
 * A WebSocket connection, with the properties of the user data that `res.upgrade` was given. It can
 * be used from its `open` handler to its `close` handler.
 */
export type WebSocket<UserData> = UserData & WebSocketMethods<UserData>;

/**
 * The methods of a WebSocket connection. Once the connection has closed they throw, apart from
 * those that return the user data and the client's address, port and protocol.
 */
export interface WebSocketMethods<UserData> {
  /**
   * Sends a message: binary if `isBinary`, otherwise text, which has to be UTF-8. `compress` asks
   * for compression, where `compression` is set and the client supports it. Returns
   *
   * - 1: sent. Messages of one turn of the event loop count as sent, up to 1 MiB.
   * - 0: buffered, because the client is slower than the sender. Slow down, or wait for `drain`.
   * - 2: dropped, because more than `maxBackpressure` bytes are buffered. `dropped` was called.
   */
  send(message: RecognizedString, isBinary?: boolean, compress?: boolean): number;
  /**
   * Sends the first fragment of a message. Other messages wait until the last fragment is sent.
   * Returns the same values as `send`. Throws if a fragmented message is under way.
   */
  sendFirstFragment(message: RecognizedString, isBinary?: boolean, compress?: boolean): number;
  /**
   * Sends the next fragment of a message. It is never dropped; a connection with more than 16 MiB
   * over `maxBackpressure` of them is closed. Throws if no fragmented message is under way.
   */
  sendFragment(message: RecognizedString, compress?: boolean): number;
  /** Sends the last fragment of a message, under the rules of `sendFragment`. */
  sendLastFragment(message: RecognizedString, compress?: boolean): number;
  /** Sends a ping with at most 125 bytes. Returns the same values as `send`. */
  ping(message?: RecognizedString): number;
  /**
   * Returns the number of bytes that wait to be sent. If there are any, `drain` is called when half
   * of them have been sent.
   */
  getBufferedAmount(): number;
  /**
   * Closes the connection after the messages sent so far, and calls the `close` handler before it
   * returns. `code`: 1000 to 1003, 1007 to 1014 or 3000 to 4999; without one, or with 0, 1005 or
   * 1006, the close frame has no code.
   */
  end(code?: number, shortMessage?: RecognizedString): void;
  /** Ends the connection at once, and calls the `close` handler with 1006 before it returns. */
  close(): void;
  /** Subscribes to a topic. Topics match exactly, without wildcards. Returns true. */
  subscribe(topic: RecognizedString): boolean;
  /** Ends a subscription. Returns whether there was one. */
  unsubscribe(topic: RecognizedString): boolean;
  /** Returns whether the connection is subscribed to a topic. */
  isSubscribed(topic: RecognizedString): boolean;
  /** Returns the topics that the connection is subscribed to. */
  getTopics(): string[];
  /** Calls `callback` for each topic that the connection is subscribed to. */
  iterateTopics(callback: (topic: string) => void): void;
  /**
   * Sends a message to all other subscribers of a topic, on all protocols. Returns whether there
   * are any. The sender does not get it: use `app.publish` to include it.
   */
  publish(
    topic: RecognizedString,
    message: RecognizedString,
    isBinary?: boolean,
    compress?: boolean,
  ): boolean;
  /**
   * Calls the callback at once. It exists for programs written for uWebSockets.js: all messages of
   * one turn of the event loop leave together in any case.
   */
  cork(callback: (ws: WebSocket<UserData>) => void): this;
  /** Returns the connection itself, which has the properties of the user data. */
  getUserData(): UserData;
  /** Returns the client's IP address: 4 bytes for IPv4, 16 for IPv6. */
  getRemoteAddress(): ArrayBuffer;
  /** Returns the client's IP address as text, such as `127.0.0.1` or `::1`, in UTF-8. */
  getRemoteAddressAsText(): ArrayBuffer;
  /** Returns the client's port. */
  getRemotePort(): number;
  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddress(): ArrayBuffer;
  /** Returns an empty buffer: the PROXY protocol is not read. */
  getProxiedRemoteAddressAsText(): ArrayBuffer;
  /** Returns 0: the PROXY protocol is not read. */
  getProxiedRemotePort(): number;
  /** Returns the HTTP version of the request. */
  getProtocol(): HttpProtocol;
}

/** Handlers and options of a WebSocket route. An unknown name throws a `TypeError`. */
export interface WebSocketBehavior<UserData> {
  /**
   * Compression to negotiate with clients that support it. A message is compressed only if its
   * sender asks for it and it has 128 bytes or more. Default: `DISABLED`.
   */
  compression?: CompressOptions;
  /**
   * Maximum size of a message from a client in bytes, 125 or more. A client that sends a larger one
   * is closed with 1009. Default: 16384.
   */
  maxPayloadLength?: number;
  /** Seconds that a client may be silent, up to 86400; 0 for no limit. Default: 120. */
  idleTimeout?: number;
  /**
   * Maximum number of bytes buffered for a client that is slower than the sender. Further messages
   * are dropped. 0 for no limit. Default: 65536.
   */
  maxBackpressure?: number;
  /** Whether a client is closed when a message to it is dropped. Default: false. */
  closeOnBackpressureLimit?: boolean;
  /** Whether a client that was silent for half of `idleTimeout` is sent a ping. Default: true. */
  sendPingsAutomatically?: boolean;
  /** Minutes until a connection is closed with 1000, up to 239; 0 for no limit. Default: 0. */
  maxLifetime?: number;
  /**
   * Answers an upgrade request, with `res.upgrade` or with any other response, at once or later
   * (with `res.onAborted`). Default: every upgrade is accepted.
   */
  upgrade?: (res: HttpResponse, req: HttpRequest, context: us_socket_context_t) => unknown;
  /** Called when the connection is open. */
  open?: (ws: WebSocket<UserData>) => unknown;
  /** Called for each message. The buffer belongs to the program. */
  message?: (ws: WebSocket<UserData>, message: ArrayBuffer, isBinary: boolean) => unknown;
  /** Called with a message that was dropped, because more than `maxBackpressure` bytes wait. */
  dropped?: (ws: WebSocket<UserData>, message: ArrayBuffer, isBinary: boolean) => unknown;
  /**
   * Called when half of the buffered bytes have been sent, and again until none wait, after `send`
   * returned 0 or 2 or `getBufferedAmount` more than 0.
   */
  drain?: (ws: WebSocket<UserData>) => unknown;
  /** Called when the client has sent a ping. The pong is sent without the handler. */
  ping?: (ws: WebSocket<UserData>, message: ArrayBuffer) => unknown;
  /** Called when the client has sent a pong. */
  pong?: (ws: WebSocket<UserData>, message: ArrayBuffer) => unknown;
  /**
   * Called when the connection has closed, by either side. Nothing can be sent any more. `code` is
   * that of the close frame, 1005 if the client's had none, 1006 if there was no close frame; for
   * `ws.end` it is the code it was given, 0 by default.
   */
  close?: (ws: WebSocket<UserData>, code: number, message: ArrayBuffer) => unknown;
  /** Called when the number of subscribers of a topic changes through this connection. */
  subscription?: (
    ws: WebSocket<UserData>,
    topic: ArrayBuffer,
    newCount: number,
    oldCount: number,
  ) => unknown;
}

/** The context of a WebTransport upgrade. It is opaque: pass it to `res.upgrade`. */
export interface wt_session_context_t {
  readonly __wt_session_context_t: never;
}

/**
 * A WebTransport session, with the properties of the user data that `res.upgrade` was given. It can
 * be used from its `open` handler to its `close` handler.
 */
export type WebTransportSession<UserData> = UserData & WebTransportSessionMethods<UserData>;

/**
 * A stream of a session: a `Duplex`, `Readable` or `Writable` of node:stream.
 *
 * `destroy` resets the stream and stops reading, with the code in `resetCode` (default: 0). When
 * the client resets the stream, `error` is emitted with the client's code as `streamErrorCode`;
 * without a listener the error is ignored. When the client stops reading a `Duplex` (STOP_SENDING),
 * only that direction ends: `stopped` is emitted with the error, callbacks of `write` and `end` get
 * it, and reading continues; `error` follows at the end of the client's data.
 */
export type WebTransportStream<Kind> = Kind & { resetCode?: number };

/**
 * The methods of a WebTransport session. Once the session has closed they throw, apart from those
 * that return the user data and the client's address and port.
 */
export interface WebTransportSessionMethods<UserData> {
  /** Opens a stream in both directions. Writes wait until the client allows another stream. */
  createBidirectionalStream(): WebTransportStream<Duplex>;
  /** Opens a stream to the client. Writes wait until the client allows another stream. */
  createUnidirectionalStream(): WebTransportStream<Writable>;
  /**
   * Sends a datagram, which arrives at most once. Returns false if it is larger than
   * `getMaxDatagramSize()`, or the client accepts no datagrams.
   */
  sendDatagram(data: RecognizedString): boolean;
  /** Returns the current maximum size of a datagram in bytes; 0 if the client accepts none. */
  getMaxDatagramSize(): number;
  /** Asks the client to end the session. The session stays open until one side closes it. */
  drain(): void;
  /**
   * Closes the session and its streams, and calls the `close` handler before it returns. `code` is
   * from 0 to 4294967295, by default 0.
   */
  close(code?: number, reason?: RecognizedString): void;
  /** Returns the session itself, which has the properties of the user data. */
  getUserData(): UserData;
  /** Returns the client's IP address: 4 bytes for IPv4, 16 for IPv6. */
  getRemoteAddress(): ArrayBuffer;
  /** Returns the client's IP address as text, such as `127.0.0.1` or `::1`, in UTF-8. */
  getRemoteAddressAsText(): ArrayBuffer;
  /** Returns the client's port. */
  getRemotePort(): number;
}

/** Handlers of a WebTransport route. An unknown name throws a `TypeError`. */
export interface WebTransportBehavior<UserData> {
  /**
   * Answers a session request, with `res.upgrade` or with any other response, at once or later
   * (with `res.onAborted`). Default: every session is accepted.
   */
  upgrade?: (res: HttpResponse, req: HttpRequest, context: wt_session_context_t) => unknown;
  /** Called when the session is open. */
  open?: (session: WebTransportSession<UserData>) => unknown;
  /**
   * Called when the client has opened a stream: a `Duplex`, or a `Readable` if it is
   * unidirectional. Without this handler the client's streams are reset.
   */
  stream?: (
    session: WebTransportSession<UserData>,
    stream: WebTransportStream<Duplex | Readable>,
  ) => unknown;
  /** Called for each datagram. The buffer belongs to the program. */
  datagram?: (session: WebTransportSession<UserData>, data: ArrayBuffer) => unknown;
  /** Called when the client asks to end the session, or the server shuts down. */
  draining?: (session: WebTransportSession<UserData>) => unknown;
  /** Called when the session has closed, by either side. Nothing can be sent any more. */
  close?: (session: WebTransportSession<UserData>, code: number, reason: ArrayBuffer) => unknown;
}

/**
 * An application: its routes, certificates and listening sockets.
 *
 * A pattern is `*`, or a path of static segments, parameters (`:id`, any segment that is not empty)
 * and at most one wildcard at the end (`*`, the rest of the path). The most specific route wins,
 * whatever the order of registration. The same method and pattern again replace the handler.
 */
export interface TemplatedApp {
  /** Adds a route for GET requests. HEAD requests need a route of their own, or `any`. */
  get(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for POST requests. */
  post(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for PUT requests. */
  put(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for PATCH requests. */
  patch(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for DELETE requests. */
  del(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for OPTIONS requests. */
  options(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for HEAD requests. */
  head(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for CONNECT requests. */
  connect(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for TRACE requests. */
  trace(pattern: RecognizedString, handler: RouteHandler): this;
  /** Adds a route for all methods. Routes of the request's own method come first. */
  any(pattern: RecognizedString, handler: RouteHandler): this;
  /**
   * Adds a WebSocket route for HTTP/1.1, HTTP/2 and HTTP/3. WebSocket routes come before all other
   * routes. `null` removes the route.
   */
  ws<UserData>(pattern: RecognizedString, behavior: WebSocketBehavior<UserData> | null): this;
  /**
   * Adds a WebTransport route for HTTP/3; apps without HTTP/3 throw. The first call has to come
   * before `listen`, because clients learn about WebTransport as they connect. `null` removes the
   * route.
   */
  wt<UserData>(pattern: RecognizedString, behavior: WebTransportBehavior<UserData> | null): this;
  /**
   * Sends a message to all subscribers of a topic, on all protocols. Returns whether there are any.
   * Topics belong to an app on its thread.
   */
  publish(
    topic: RecognizedString,
    message: RecognizedString,
    isBinary?: boolean,
    compress?: boolean,
  ): boolean;
  /** Returns the number of subscribers of a topic. */
  numSubscribers(topic: RecognizedString): number;
  /**
   * Listens on a port, 0 for any free one, and calls the callback before it returns: with the
   * listening socket, or with `false` and an error whose `code` is, for example, `EADDRINUSE`.
   * Without a callback it throws the error. Without a host it listens on all addresses, IPv6 and
   * IPv4. `options` is `LIBUS_LISTEN_DEFAULT` or `LIBUS_LISTEN_EXCLUSIVE_PORT`.
   */
  listen(port: number, callback?: ListenCallback): this;
  /** Listens on a port of all addresses, with options. */
  listen(port: number, options: number, callback: ListenCallback): this;
  /** Listens on a port of one host name or address. */
  listen(host: string, port: number, callback?: ListenCallback): this;
  /** Listens on a port of one host name or address, with options. */
  listen(host: string, port: number, options: number, callback: ListenCallback): this;
  /** Sets the certificate of a host name, which may begin with `*.`; replaces an earlier one. */
  addServerName(hostname: string, options: TlsOptions): this;
  /** Removes the certificate and the routes of a host name. */
  removeServerName(hostname: string): this;
  /**
   * Sets the callback for handshakes with a server name that has no certificate. It may call
   * `addServerName` before it returns; otherwise the app's own certificate is used, if it has one.
   */
  missingServerName(callback: (hostname: string) => void): this;
  /**
   * Limits the routes that are added from now on to one host name, which may begin with `*.`;
   * without a name, or with '', they apply to all hosts without routes of their own.
   */
  domain(hostname?: string): this;
  /** Replaces the app's certificate for new handshakes. Open connections keep theirs. */
  setCertificate(options: TlsOptions): this;
  /** Adds a callback for connections: `count` is 1 when one is opened, -1 when one has ended. */
  filter(callback: (connection: FilteredConnection, count: 1 | -1) => void): this;
  /** Closes all listening sockets and connections at once. */
  close(): this;
  /**
   * Shuts down gracefully: stops accepting connections, announces the end to clients (GOAWAY,
   * `connection: close`, WebSocket 1001), and gives open requests `timeout` milliseconds to finish.
   * Resolves when all connections have ended. Another call can shorten the time.
   */
  close(options: { timeout: number }): Promise<void>;
  /**
   * Returns the counters of all open listening sockets, added up, such as `requests_http1`,
   * `tcp_open` and `quic_open`.
   */
  getStatistics(): Record<string, number>;
}

/** Creates an app for HTTP/1.1 in clear text. */
export function App(options?: AppOptions): TemplatedApp;
/** Creates an app for HTTP/1.1 and HTTP/2 over TLS. */
export function SSLApp(options?: AppOptions): TemplatedApp;
/** Creates an app for HTTP/3. */
export function H3App(options?: AppOptions): TemplatedApp;
/**
 * Creates an app for HTTP/1.1, HTTP/2 and HTTP/3 on one port (TCP and UDP). Its `alt-svc` header
 * announces HTTP/3.
 */
export function Server(options?: AppOptions): TemplatedApp;

/** Stops accepting connections on a listening socket. Open connections continue. */
export function us_listen_socket_close(listenSocket: us_listen_socket): void;
/** Returns the port of a listening socket, or -1 if it is closed. */
export function us_socket_local_port(listenSocket: us_listen_socket | false): number;

/** A part of a multipart body. */
export interface MultipartField {
  /** The content, a copy of its own. */
  data: ArrayBuffer;
  /** Name of the form field. */
  name: string;
  /** The part's `content-type`. */
  type?: string;
  /** Name of the uploaded file. */
  filename?: string;
}

/**
 * Parses a multipart/form-data body (RFC 7578), with the `content-type` of its request. Returns
 * `undefined` if the body or the type is malformed, or a part has more than 10 header lines. Parts
 * without a name are left out.
 */
export function getParts(body: RecognizedString, contentType: string): MultipartField[] | undefined;

/**
 * A certificate for development. Pass it to `SSLApp`, `H3App`, `Server` or `setCertificate`, or
 * spread it into their options.
 */
export interface DevelopmentCertificate {
  /** File with the private key in PEM form. */
  key_file_name: string;
  /** File with the certificate in PEM form. */
  cert_file_name: string;
  /** SHA-256 of the public key in base64, for Chromium's --ignore-certificate-errors-spki-list. */
  readonly spkiSha256: string;
  /** SHA-256 of the certificate in base64, for `serverCertificateHashes` of WebTransport. */
  readonly sha256: string;
  /** Time at which the certificate expires. */
  readonly validTo: Date;
  /**
   * Returns command-line flags that make Chromium accept the certificate, and use HTTP/3 from the
   * first request to this port of localhost.
   */
  chromiumFlags(port: number): string[];
}

/**
 * Returns the user's certificate for development, for `localhost`, the loopback addresses and this
 * machine's name. It is stored in `folder` (default: `pronghorn` in the user's data folder, shared
 * with the program `pronghorn`). It is valid for 13 days, and replaced when it expires within a
 * day. It is self-signed: do not use it on the open internet.
 */
export function developmentCertificate(options?: { folder?: string }): DevelopmentCertificate;

/**
 * Builds a response that is computed without JavaScript. Each call adds a header or the next part
 * of the body. Names, keys and header values have less than 256 bytes, other values less than
 * 65536; longer ones throw a `RangeError`.
 */
export class DeclarativeResponse {
  /** Adds a header. */
  writeHeader(key: RecognizedString, value: RecognizedString): this;
  /** Adds the request body, up to 1 MiB; a larger one is answered 413. */
  writeBody(): this;
  /** Adds the decoded value of a query key; nothing if the key is missing. */
  writeQueryValue(key: string): this;
  /** Adds the value of a request header, its first line; nothing if the header is missing. */
  writeHeaderValue(key: string): this;
  /** Adds the value of a route parameter, by its name; nothing if the route has none. */
  writeParameterValue(key: string): this;
  /** Adds a fixed value. */
  write(value: RecognizedString): this;
  /** Ends the body, with this value if given. Returns the handler to pass to a route. */
  end(value?: RecognizedString): ArrayBuffer;
}

/**
 * Option of `listen`: other threads of this process and other workers of its cluster
 * (`node:cluster`, PM2) may share the port.
 */
export const LIBUS_LISTEN_DEFAULT: 0;
/** Option of `listen`: no other thread or worker shares the port. */
export const LIBUS_LISTEN_EXCLUSIVE_PORT: 1;

/**
 * A value of `compression`: `DISABLED`, or a compressor and a decompressor combined with `|`. The
 * shared ones keep no context between messages; the dedicated ones keep a window per connection,
 * which compresses better and takes memory. The size in the name is that of uWebSockets.js.
 */
export type CompressOptions = number;
/** No compression. */
export const DISABLED: 0;
/** Compression without a kept window. */
export const SHARED_COMPRESSOR: 1;
/** Decompression without a kept window. */
export const SHARED_DECOMPRESSOR: 256;
/** Compression with a window of 512 bytes per connection. */
export const DEDICATED_COMPRESSOR_3KB: 145;
/** Compression with a window of 1 KiB per connection. */
export const DEDICATED_COMPRESSOR_4KB: 146;
/** Compression with a window of 2 KiB per connection. */
export const DEDICATED_COMPRESSOR_8KB: 163;
/** Compression with a window of 4 KiB per connection. */
export const DEDICATED_COMPRESSOR_16KB: 180;
/** Compression with a window of 8 KiB per connection. */
export const DEDICATED_COMPRESSOR_32KB: 197;
/** Compression with a window of 16 KiB per connection. */
export const DEDICATED_COMPRESSOR_64KB: 214;
/** Compression with a window of 32 KiB per connection. */
export const DEDICATED_COMPRESSOR_128KB: 231;
/** Compression with a window of 32 KiB per connection. */
export const DEDICATED_COMPRESSOR_256KB: 248;
/** Alias of `DEDICATED_COMPRESSOR_256KB`. */
export const DEDICATED_COMPRESSOR: 248;
/** Decompression with a window of 512 bytes per connection. */
export const DEDICATED_DECOMPRESSOR_512B: 2304;
/** Decompression with a window of 1 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_1KB: 2560;
/** Decompression with a window of 2 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_2KB: 2816;
/** Decompression with a window of 4 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_4KB: 3072;
/** Decompression with a window of 8 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_8KB: 3328;
/** Decompression with a window of 16 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_16KB: 3584;
/** Decompression with a window of 32 KiB per connection. */
export const DEDICATED_DECOMPRESSOR_32KB: 3840;
/** Alias of `DEDICATED_DECOMPRESSOR_32KB`. */
export const DEDICATED_DECOMPRESSOR: 3840;
