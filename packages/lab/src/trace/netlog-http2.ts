import { dependencyIn, numberIn, textIn, type NetLogEvent } from './netlog-events.js';
import { portOf, requestUrl } from './netlog-request.js';
import type { Delivered, FlowControlFrame, NetLogConnection, NetLogStream } from './netlog.js';

/** The events of HTTP/2 sessions and their sockets that are read. */
export const HTTP2_EVENTS = [
  'TCP_CONNECT',
  'SSL_CONNECT',
  'SOCKET_BYTES_RECEIVED',
  'SSL_SOCKET_BYTES_RECEIVED',
  'HTTP2_SESSION',
  'HTTP2_SESSION_INITIALIZED',
  'HTTP2_SESSION_SEND_HEADERS',
  'HTTP2_SESSION_RECV_HEADERS',
  'HTTP2_SESSION_RECV_DATA',
  'HTTP2_SESSION_RECV_RST_STREAM',
  'HTTP2_SESSION_UPDATE_RECV_WINDOW',
  'HTTP2_STREAM_UPDATE_RECV_WINDOW',
  'HTTP2_SESSION_RECV_WINDOW_UPDATE',
  'HTTP2_SESSION_SEND_WINDOW_UPDATE',
  'HTTP2_SESSION_STREAM_STALLED_BY_SESSION_SEND_WINDOW',
  'HTTP2_SESSION_STREAM_STALLED_BY_STREAM_SEND_WINDOW',
] as const;

/** A point at which the positions in TCP's bytes and in the decrypted bytes are both known. */
export interface SocketRead {
  readonly at: number;
  /** Bytes of TCP until here, from the start of the connection. */
  readonly tcpBytes: number;
  /** Decrypted bytes until here. */
  readonly textBytes: number;
}

/** Body bytes of a stream, and where they end in the decrypted bytes. */
export interface Http2Delivered extends Delivered {
  readonly textEnd: number;
  readonly length: number;
}

interface Socket {
  nearPort?: number;
  connectFrom?: number;
  handshakeTo?: number;
  tcpBytes: number;
  textBytes: number;
  readonly reads: SocketRead[];
}

interface Stream {
  readonly id: number;
  readonly url: string;
  readonly requestedAt: number;
  headersAt?: number;
  endedAt?: number;
  bytes: number;
  /** Bytes of its DATA frames so far, and whether the last of them has been announced. */
  announced: number;
  finished: boolean;
  readonly delivered: Http2Delivered[];
}

interface Session {
  readonly from: number;
  readonly host: string;
  socketId?: number;
  readonly streams: Map<number, Stream>;
  readonly flowControl: FlowControlFrame[];
}

/** Collects the HTTP/2 sessions of a NetLog. */
export class Http2Sessions {
  readonly #sockets = new Map<number, Socket>();
  readonly #sessions = new Map<number, Session>();
  /**
   * A stream's own events name the request instead of the session, but each directly follows an
   * event of its session.
   */
  #last: Session | undefined;

  onEvent(event: NetLogEvent): void {
    switch (event.name) {
      case 'HTTP2_SESSION':
        if (event.phase === 'begin') this.#sessions.set(event.source, newSession(event));
        return;
      case 'HTTP2_STREAM_UPDATE_RECV_WINDOW':
        if (this.#last !== undefined) this.#onContent(this.#last, event);
        return;
      case 'TCP_CONNECT':
      case 'SSL_CONNECT':
      case 'SOCKET_BYTES_RECEIVED':
      case 'SSL_SOCKET_BYTES_RECEIVED':
        onSocketEvent(this.#socket(event.source), event);
        return;
      default: {
        const session = this.#sessions.get(event.source);
        if (session === undefined) return;
        this.#last = session;
        onSessionEvent(session, event);
      }
    }
  }

  connections(): NetLogConnection[] {
    return [...this.#sessions.values()].flatMap((session) => {
      const { socketId } = session;
      return socketId === undefined
        ? []
        : [connectionOf(socketId, this.#socket(socketId), session)];
    });
  }

  #socket(id: number): Socket {
    const socket = this.#sockets.get(id) ?? { tcpBytes: 0, textBytes: 0, reads: [] };
    this.#sockets.set(id, socket);
    return socket;
  }

  /**
   * The window of a stream shrinks by the bytes received for it, and grows again when the page has
   * consumed them.
   */
  #onContent(session: Session, event: NetLogEvent): void {
    const delta = numberIn(event, 'delta');
    const stream = streamOf(session, event);
    if (stream === undefined || delta === undefined || delta >= 0 || session.socketId === undefined)
      return;
    stream.bytes -= delta;
    const textEnd = this.#socket(session.socketId).textBytes;
    stream.delivered.push({ at: event.at, bytes: stream.bytes, length: -delta, textEnd });
    if (stream.finished && stream.bytes >= stream.announced) stream.endedAt ??= event.at;
  }
}

function newSession(event: NetLogEvent): Session {
  const host = (textIn(event, 'host') ?? '').replace(/:\d+$/, '');
  return { from: event.at, host, streams: new Map(), flowControl: [] };
}

function onSocketEvent(socket: Socket, event: NetLogEvent): void {
  const bytes = numberIn(event, 'byte_count') ?? 0;
  switch (event.name) {
    case 'TCP_CONNECT':
      if (event.phase === 'begin') socket.connectFrom ??= event.at;
      else socket.nearPort ??= portOf(textIn(event, 'local_address')) ?? 0;
      return;
    case 'SSL_CONNECT':
      if (event.phase === 'end') socket.handshakeTo ??= event.at;
      return;
    case 'SSL_SOCKET_BYTES_RECEIVED':
      socket.textBytes += bytes;
      return;
    default:
      // TLS requests more only after it has delivered everything: here both positions are known.
      if (socket.reads.at(-1)?.textBytes !== socket.textBytes) {
        socket.reads.push({ at: event.at, tcpBytes: socket.tcpBytes, textBytes: socket.textBytes });
      }
      socket.tcpBytes += bytes;
  }
}

function onSessionEvent(session: Session, event: NetLogEvent): void {
  switch (event.name) {
    case 'HTTP2_SESSION_INITIALIZED': {
      const socketId = dependencyIn(event);
      if (socketId !== undefined) session.socketId = socketId;
      return;
    }
    case 'HTTP2_SESSION_SEND_HEADERS': {
      const id = numberIn(event, 'stream_id');
      const url = requestUrl(event);
      if (id === undefined || url === undefined) return;
      const requestedAt = event.at;
      session.streams.set(id, {
        id,
        url,
        requestedAt,
        bytes: 0,
        announced: 0,
        finished: false,
        delivered: [],
      });
      return;
    }
    case 'HTTP2_SESSION_RECV_HEADERS': {
      const stream = streamOf(session, event);
      if (stream === undefined) return;
      stream.headersAt ??= event.at;
      if (event.params.fin === true) stream.endedAt ??= event.at;
      return;
    }
    case 'HTTP2_SESSION_RECV_DATA': {
      // Logged when the frame's header was received; its content follows as it arrives.
      const stream = streamOf(session, event);
      if (stream === undefined) return;
      stream.announced += numberIn(event, 'size') ?? 0;
      stream.finished ||= event.params.fin === true;
      if (stream.finished && stream.bytes >= stream.announced) stream.endedAt ??= event.at;
      return;
    }
    case 'HTTP2_SESSION_RECV_RST_STREAM': {
      const stream = streamOf(session, event);
      if (stream !== undefined) stream.endedAt ??= event.at;
      return;
    }
    case 'HTTP2_SESSION_RECV_WINDOW_UPDATE':
    case 'HTTP2_SESSION_SEND_WINDOW_UPDATE':
    case 'HTTP2_SESSION_STREAM_STALLED_BY_SESSION_SEND_WINDOW':
    case 'HTTP2_SESSION_STREAM_STALLED_BY_STREAM_SEND_WINDOW':
      session.flowControl.push(flowControlFrame(event));
  }
}

function flowControlFrame(event: NetLogEvent): FlowControlFrame {
  const stream = numberIn(event, 'stream_id');
  const limit = numberIn(event, 'delta');
  return {
    at: event.at,
    frame: event.name.includes('STALLED') ? 'blocked' : 'window-update',
    from: event.name.includes('RECV') ? 'server' : 'client',
    ...(stream !== undefined && stream !== 0 && { stream }),
    ...(limit !== undefined && { limit }),
  };
}

function streamOf(session: Session, event: NetLogEvent): Stream | undefined {
  const id = numberIn(event, 'stream_id');
  return id === undefined ? undefined : session.streams.get(id);
}

function connectionOf(id: number, socket: Socket, session: Session): NetLogConnection {
  const to = socket.handshakeTo ?? session.from;
  const last = { at: Infinity, tcpBytes: socket.tcpBytes, textBytes: socket.textBytes };
  return {
    id,
    protocol: 'h2',
    host: session.host,
    ...(socket.nearPort !== undefined && { nearPort: socket.nearPort }),
    handshake: { from: socket.connectFrom ?? session.from, to },
    reads: [...socket.reads, last],
    flowControl: session.flowControl,
    streams: [...session.streams.values()].map(publicStream),
  };
}

function publicStream({
  id,
  url,
  requestedAt,
  headersAt,
  endedAt,
  delivered,
}: Stream): NetLogStream {
  return {
    id,
    url,
    requestedAt,
    ...(headersAt !== undefined && { headersAt }),
    ...(endedAt !== undefined && { endedAt }),
    arrived: [],
    delivered,
  };
}
