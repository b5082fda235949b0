import { readNetLogEvents } from './netlog-events.js';
import { Http2Sessions, HTTP2_EVENTS, type SocketRead } from './netlog-http2.js';
import { QuicSessions, QUIC_EVENTS } from './netlog-quic.js';
import { Races, RACE_EVENTS, type Race } from './netlog-race.js';

/** Some bytes of a stream at some time. */
export interface StreamPiece {
  /** Milliseconds since navigation start. */
  readonly at: number;
  readonly offset: number;
  readonly length: number;
}

/** The length of what the browser could read of a stream at some time: without gaps, from the start. */
export interface Delivered {
  readonly at: number;
  readonly bytes: number;
}

/** One request's stream, as the browser saw it. */
export interface NetLogStream {
  readonly id: number;
  readonly url: string;
  readonly requestedAt: number;
  readonly headersAt?: number;
  /** When its last byte had come and nothing before it was missing. */
  readonly endedAt?: number;
  /**
   * What arrived, in the order of arrival. Of HTTP/3 each STREAM frame, so that gaps show. Of HTTP/2 a browser sees
   * only what TCP hands over, so that it is empty here; `tcpArrivals` finds it with the link's packets.
   */
  readonly arrived: readonly StreamPiece[];
  /** Of HTTP/3 all bytes of the stream, of HTTP/2 the content's. */
  readonly delivered: readonly Delivered[];
}

/** A frame of QUIC's or HTTP/2's flow control. */
export interface FlowControlFrame {
  readonly at: number;
  readonly frame: 'blocked' | 'streams-blocked' | 'window-update';
  /** Who sent it. `blocked` that was received says that the server waits. */
  readonly from: 'client' | 'server';
  /** Undefined for the whole connection. */
  readonly stream?: number;
  /** The new limit of QUIC, in bytes from the start of the stream; of HTTP/2 what is added to the window. */
  readonly limit?: number;
}

/** A connection of the browser. */
export interface NetLogConnection {
  /** What the developer tools call `connectionId`. */
  readonly id: number;
  readonly protocol: 'h2' | 'h3';
  readonly host: string;
  /** The client's port. */
  readonly nearPort?: number;
  /** From the first try to connect until requests may be sent. */
  readonly handshake: { readonly from: number; readonly to?: number };
  /** Only HTTP/3. */
  readonly quic?: {
    readonly version?: string;
    /** Of what the client sends. */
    readonly congestion?: string;
    readonly initialWindowPackets?: number;
    /** Chromium's words: `NotAttempted`, `AttemptedAndSucceeded`, `AttemptedAndRejected`. */
    readonly zeroRtt?: string;
    /** The connection ID that the client chose for the server first, which names the server's qlog file. */
    readonly firstConnectionId?: string;
    /** Packets of the client's that it holds for lost, and those that it sent again. */
    readonly lost: readonly number[];
    readonly retransmitted: readonly number[];
  };
  /** Only HTTP/2: what was read from the socket, and where the text that TLS made of it stands. */
  readonly reads?: readonly SocketRead[];
  readonly flowControl: readonly FlowControlFrame[];
  readonly streams: readonly NetLogStream[];
}

/** What a NetLog says of the transport of a load. */
export interface NetLogTrace {
  readonly connections: readonly NetLogConnection[];
  /** Requests for which the browser tried QUIC and TCP against each other. */
  readonly races: readonly Race[];
}

/**
 * Reads a NetLog. Capture mode `Default` is enough: Chromium 156 logs all of these events in it (`Everything` adds the
 * bytes of sockets and cookies, and is not needed).
 */
export async function readNetLog(path: string, zeroMs: number): Promise<NetLogTrace> {
  const quic = new QuicSessions();
  const http2 = new Http2Sessions();
  const races = new Races();
  for await (const event of readNetLogEvents(path, [...QUIC_EVENTS, ...HTTP2_EVENTS, ...RACE_EVENTS], zeroMs)) {
    quic.onEvent(event);
    http2.onEvent(event);
    races.onEvent(event);
  }
  return { connections: [...quic.connections(), ...http2.connections()], races: races.races() };
}
