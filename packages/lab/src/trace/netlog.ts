import { readNetLogEvents } from './netlog-events.js';
import { Http2Sessions, HTTP2_EVENTS, type SocketRead } from './netlog-http2.js';
import { QuicSessions, QUIC_EVENTS } from './netlog-quic.js';
import { Races, RACE_EVENTS, type Race } from './netlog-race.js';

/** A range of a stream's bytes and its time. */
export interface StreamPiece {
  /** Milliseconds since navigation start. */
  readonly at: number;
  readonly offset: number;
  readonly length: number;
}

/**
 * The number of a stream's bytes, contiguous from its start, that the browser could read at some
 * time.
 */
export interface Delivered {
  readonly at: number;
  readonly bytes: number;
}

/** One request's stream, as seen by the browser. */
export interface NetLogStream {
  readonly id: number;
  readonly url: string;
  readonly requestedAt: number;
  readonly headersAt?: number;
  /** When its last byte had arrived and none before it was missing. */
  readonly endedAt?: number;
  /**
   * Received ranges in the order of arrival. For HTTP/3 each STREAM frame, so gaps are visible. For
   * HTTP/2 it is empty, since a browser sees only what TCP delivers; `tcpArrivals` reconstructs it
   * from the link's packets.
   */
  readonly arrived: readonly StreamPiece[];
  /** For HTTP/3 all bytes of the stream, for HTTP/2 those of the body. */
  readonly delivered: readonly Delivered[];
}

/** A frame of QUIC's or HTTP/2's flow control. */
export interface FlowControlFrame {
  readonly at: number;
  readonly frame: 'blocked' | 'streams-blocked' | 'window-update';
  /** The sender. A received `blocked` means that the server waits. */
  readonly from: 'client' | 'server';
  /** Undefined for the whole connection. */
  readonly stream?: number;
  /**
   * QUIC: the new limit in bytes from the start of the stream. HTTP/2: the increment of the window.
   */
  readonly limit?: number;
}

/** A connection of the browser. */
export interface NetLogConnection {
  /** The `connectionId` of the developer tools. */
  readonly id: number;
  readonly protocol: 'h2' | 'h3';
  readonly host: string;
  /** The client's port. */
  readonly nearPort?: number;
  /** From the first attempt to connect until requests may be sent. */
  readonly handshake: { readonly from: number; readonly to?: number };
  /** Only for HTTP/3. */
  readonly quic?: {
    readonly version?: string;
    /** Congestion control of what the client sends. */
    readonly congestion?: string;
    readonly initialWindowPackets?: number;
    /** Chromium's words: `NotAttempted`, `AttemptedAndSucceeded`, `AttemptedAndRejected`. */
    readonly zeroRtt?: string;
    /**
     * The client's first choice of the server's connection ID, which names the server's qlog file.
     */
    readonly firstConnectionId?: string;
    /** Times at which the client declared its packets lost, and at which it retransmitted. */
    readonly lost: readonly number[];
    readonly retransmitted: readonly number[];
  };
  /**
   * Only for HTTP/2: reads from the socket, and the corresponding positions in the decrypted bytes.
   */
  readonly reads?: readonly SocketRead[];
  readonly flowControl: readonly FlowControlFrame[];
  readonly streams: readonly NetLogStream[];
}

/** The transport information in a load's NetLog. */
export interface NetLogTrace {
  readonly connections: readonly NetLogConnection[];
  /** Requests for which the browser raced QUIC against TCP. */
  readonly races: readonly Race[];
}

/**
 * Reads a NetLog. Capture mode `Default` is enough: Chromium 156 logs all of these events in it
 * (`Everything` adds the bytes of sockets and cookies, and is not needed).
 */
export async function readNetLog(path: string, zeroMs: number): Promise<NetLogTrace> {
  const quic = new QuicSessions();
  const http2 = new Http2Sessions();
  const races = new Races();
  for await (const event of readNetLogEvents(
    path,
    [...QUIC_EVENTS, ...HTTP2_EVENTS, ...RACE_EVENTS],
    zeroMs,
  )) {
    quic.onEvent(event);
    http2.onEvent(event);
    races.onEvent(event);
  }
  return { connections: [...quic.connections(), ...http2.connections()], races: races.races() };
}
