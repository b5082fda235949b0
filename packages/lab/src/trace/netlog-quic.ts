import { Contiguous } from './contiguous.js';
import { numberIn, textIn, type NetLogEvent } from './netlog-events.js';
import { portOf, requestUrl } from './netlog-request.js';
import type {
  Delivered,
  FlowControlFrame,
  NetLogConnection,
  NetLogStream,
  StreamPiece,
} from './netlog.js';

/** The events of a QUIC session that are read. */
export const QUIC_EVENTS = [
  'QUIC_SESSION',
  'QUIC_SESSION_PACKET_RECEIVED',
  'QUIC_SESSION_VERSION_NEGOTIATED',
  'QUIC_SESSION_CRYPTO_HANDSHAKE_COMPLETE',
  'QUIC_SESSION_ZERO_RTT_STATE',
  'QUIC_CONGESTION_CONTROL_CONFIGURED',
  'QUIC_SESSION_PACKET_LOST',
  'QUIC_SESSION_PACKET_RETRANSMITTED',
  'QUIC_SESSION_STREAM_FRAME_RECEIVED',
  'QUIC_SESSION_RST_STREAM_FRAME_RECEIVED',
  'QUIC_SESSION_BLOCKED_FRAME_RECEIVED',
  'QUIC_SESSION_BLOCKED_FRAME_SENT',
  'QUIC_SESSION_STREAMS_BLOCKED_FRAME_RECEIVED',
  'QUIC_SESSION_STREAMS_BLOCKED_FRAME_SENT',
  'QUIC_SESSION_WINDOW_UPDATE_FRAME_RECEIVED',
  'QUIC_SESSION_WINDOW_UPDATE_FRAME_SENT',
  'QUIC_CHROMIUM_CLIENT_STREAM_SEND_REQUEST_HEADERS',
  'HTTP3_HEADERS_SENT',
  'HTTP3_HEADERS_DECODED',
] as const;

/** Chromium's stream ID for the whole connection: 2^32 − 1, as a signed or unsigned number. */
const WHOLE_CONNECTION = [-1, 4294967295];

interface Stream {
  readonly id: number;
  readonly url: string;
  readonly requestedAt: number;
  headersAt?: number;
  endedAt?: number;
  readonly arrived: StreamPiece[];
  readonly delivered: Delivered[];
  readonly bytes: Contiguous;
  finalSize?: number;
}

class Session {
  readonly streams = new Map<number, Stream>();
  readonly flowControl: FlowControlFrame[] = [];
  readonly lost: number[] = [];
  readonly retransmitted: number[] = [];
  nearPort?: number;
  version?: string;
  handshakeTo?: number;
  zeroRtt?: string;
  congestion?: string;
  initialWindowPackets?: number;

  constructor(
    readonly from: number,
    readonly host: string,
    readonly firstConnectionId: string | undefined,
  ) {}
}

/** Collects the QUIC sessions of a NetLog. */
export class QuicSessions {
  readonly #sessions = new Map<number, Session>();

  onEvent(event: NetLogEvent): void {
    if (event.name === 'QUIC_SESSION') {
      if (event.phase !== 'begin') return;
      const session = new Session(
        event.at,
        textIn(event, 'host') ?? '',
        textIn(event, 'connection_id'),
      );
      this.#sessions.set(event.source, session);
      return;
    }
    const session = this.#sessions.get(event.source);
    if (session !== undefined) onSessionEvent(session, event);
  }

  /** Returns all attempted connections, including unanswered ones, whose port is unknown. */
  connections(): NetLogConnection[] {
    return [...this.#sessions].map(([id, session]) => connectionOf(id, session));
  }
}

function onSessionEvent(session: Session, event: NetLogEvent): void {
  switch (event.name) {
    case 'QUIC_SESSION_PACKET_RECEIVED':
      set(session, 'nearPort', portOf(textIn(event, 'self_address')));
      return;
    case 'QUIC_SESSION_VERSION_NEGOTIATED':
      set(session, 'version', textIn(event, 'version'));
      return;
    case 'QUIC_SESSION_CRYPTO_HANDSHAKE_COMPLETE':
      session.handshakeTo ??= event.at;
      return;
    case 'QUIC_SESSION_ZERO_RTT_STATE':
      set(session, 'zeroRtt', textIn(event, 'state'));
      return;
    case 'QUIC_CONGESTION_CONTROL_CONFIGURED':
      set(session, 'congestion', textIn(event, 'congestion_control_type'));
      set(session, 'initialWindowPackets', numberIn(event, 'initial_congestion_window'));
      return;
    case 'QUIC_SESSION_PACKET_LOST':
      session.lost.push(event.at);
      return;
    case 'QUIC_SESSION_PACKET_RETRANSMITTED':
      session.retransmitted.push(event.at);
      return;
    case 'QUIC_CHROMIUM_CLIENT_STREAM_SEND_REQUEST_HEADERS':
    case 'HTTP3_HEADERS_SENT':
      onRequest(session, event);
      return;
    case 'HTTP3_HEADERS_DECODED': {
      const stream = streamOf(session, event);
      if (stream !== undefined) stream.headersAt ??= event.at;
      return;
    }
    case 'QUIC_SESSION_STREAM_FRAME_RECEIVED':
      onStreamFrame(streamOf(session, event), event);
      return;
    case 'QUIC_SESSION_RST_STREAM_FRAME_RECEIVED': {
      const stream = streamOf(session, event);
      if (stream !== undefined) stream.endedAt ??= event.at;
      return;
    }
    default:
      onFlowControl(session, event);
  }
}

function onRequest(session: Session, event: NetLogEvent): void {
  const id = numberIn(event, 'stream_id') ?? numberIn(event, 'quic_stream_id');
  const url = requestUrl(event);
  if (id === undefined || url === undefined || session.streams.has(id)) return;
  const requestedAt = event.at;
  session.streams.set(id, {
    id,
    url,
    requestedAt,
    arrived: [],
    delivered: [],
    bytes: new Contiguous(),
  });
}

function onStreamFrame(stream: Stream | undefined, event: NetLogEvent): void {
  const offset = numberIn(event, 'offset');
  const length = numberIn(event, 'length');
  if (stream === undefined || offset === undefined || length === undefined) return;
  const { at } = event;
  const before = stream.bytes.end;
  if (event.params.fin === true) stream.finalSize = offset + length;
  // Bytes that a spurious retransmission repeats are not new.
  if (stream.bytes.add(offset, offset + length)) stream.arrived.push({ at, offset, length });
  if (stream.bytes.end > before) stream.delivered.push({ at, bytes: stream.bytes.end });
  if (stream.bytes.end === stream.finalSize) stream.endedAt ??= at;
}

const FLOW_CONTROL = /^QUIC_SESSION_(BLOCKED|STREAMS_BLOCKED|WINDOW_UPDATE)_FRAME_(RECEIVED|SENT)$/;
const FRAMES = {
  BLOCKED: 'blocked',
  STREAMS_BLOCKED: 'streams-blocked',
  WINDOW_UPDATE: 'window-update',
} as const;

function onFlowControl(session: Session, event: NetLogEvent): void {
  const [, frame, direction] = FLOW_CONTROL.exec(event.name) ?? [];
  if (frame === undefined) return;
  const stream = numberIn(event, 'stream_id');
  const limit = numberIn(event, 'byte_offset');
  session.flowControl.push({
    at: event.at,
    frame: FRAMES[frame as keyof typeof FRAMES],
    from: direction === 'SENT' ? 'client' : 'server',
    ...(stream !== undefined &&
      frame !== 'STREAMS_BLOCKED' &&
      !WHOLE_CONNECTION.includes(stream) && { stream }),
    ...(limit !== undefined && { limit }),
  });
}

function streamOf(session: Session, event: NetLogEvent): Stream | undefined {
  const id = numberIn(event, 'stream_id');
  return id === undefined ? undefined : session.streams.get(id);
}

function connectionOf(id: number, session: Session): NetLogConnection {
  const { host, from, handshakeTo, flowControl, nearPort, lost, retransmitted } = session;
  const { version, congestion, initialWindowPackets, zeroRtt, firstConnectionId } = session;
  return {
    id,
    protocol: 'h3',
    host,
    ...(nearPort !== undefined && { nearPort }),
    handshake: { from, ...(handshakeTo !== undefined && { to: handshakeTo }) },
    quic: {
      ...(version !== undefined && { version }),
      ...(congestion !== undefined && { congestion }),
      ...(initialWindowPackets !== undefined && { initialWindowPackets }),
      ...(zeroRtt !== undefined && { zeroRtt }),
      ...(firstConnectionId !== undefined && { firstConnectionId }),
      lost,
      retransmitted,
    },
    flowControl,
    streams: [...session.streams.values()].map(publicStream),
  };
}

function publicStream(stream: Stream): NetLogStream {
  const { id, url, requestedAt, headersAt, endedAt, arrived, delivered } = stream;
  return {
    id,
    url,
    requestedAt,
    ...(headersAt !== undefined && { headersAt }),
    ...(endedAt !== undefined && { endedAt }),
    arrived,
    delivered,
  };
}

/** Sets a field once, if there is a value. */
function set<T, K extends keyof T>(target: T, key: K, value: T[K] | undefined): void {
  if (value !== undefined) target[key] ??= value;
}
