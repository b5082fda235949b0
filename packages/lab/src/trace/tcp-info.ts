import { integer, optionalInteger, readCsv, type Row } from './csv.js';

const COLUMNS = [
  ...([
    'time_ns',
    'end',
    'near_port',
    'far_port',
    'rtt_us',
    'cwnd_packets',
    'ssthresh_packets',
    'mss',
  ] as const),
  ...([
    'unacked_packets',
    'receive_window_limited_us',
    'send_buffer_limited_us',
    'busy_us',
    'congestion',
  ] as const),
] as const;

/**
 * A kernel's state of one end of a TCP connection at one time: a row of `pronghorn link
 * --tcp-info`.
 */
export interface TcpInfo {
  /** Milliseconds since navigation start. */
  readonly at: number;
  /** `near` is the client's socket, `far` the server's. */
  readonly end: 'near' | 'far';
  readonly nearPort: number;
  readonly farPort: number;
  readonly roundTripMs: number;
  readonly windowPackets: number;
  /** Undefined until slow start has ended. */
  readonly thresholdPackets?: number;
  readonly segmentBytes: number;
  readonly inFlightPackets: number;
  /** Total time with data to send, followed by the parts of it limited by each cause. */
  readonly busyMs: number;
  readonly receiveWindowLimitedMs: number;
  readonly sendBufferLimitedMs: number;
  readonly congestion: string;
}

/** Reads a file of samples. Times become milliseconds since `zeroMs`. */
export async function readTcpInfo(path: string, zeroMs: number): Promise<TcpInfo[]> {
  return readCsv(path, COLUMNS, (row) => infoOf(row, zeroMs));
}

function infoOf(row: Row<(typeof COLUMNS)[number]>, zeroMs: number): TcpInfo | undefined {
  const number = (column: (typeof COLUMNS)[number]): number => integer(row[column]) ?? NaN;
  const threshold = optionalInteger(row.ssthresh_packets);
  if (threshold === undefined || (row.end !== 'near' && row.end !== 'far')) return undefined;
  const info = {
    at: number('time_ns') / 1e6 - zeroMs,
    nearPort: number('near_port'),
    farPort: number('far_port'),
    roundTripMs: number('rtt_us') / 1e3,
    windowPackets: number('cwnd_packets'),
    segmentBytes: number('mss'),
    inFlightPackets: number('unacked_packets'),
    busyMs: number('busy_us') / 1e3,
    receiveWindowLimitedMs: number('receive_window_limited_us') / 1e3,
    sendBufferLimitedMs: number('send_buffer_limited_us') / 1e3,
  };
  if (Object.values(info).some(Number.isNaN)) return undefined;
  return {
    ...info,
    end: row.end,
    ...(threshold !== null && { thresholdPackets: threshold }),
    congestion: row.congestion,
  };
}
