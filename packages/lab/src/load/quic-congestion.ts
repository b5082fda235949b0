import { numberIn, readNetLogEvents, textIn } from '../trace/netlog-events.js';

export interface QuicCongestion {
  readonly algorithm: string;
  readonly initialWindowPackets?: number;
}

/**
 * Reads from a Chromium NetLog the congestion control of its QUIC connections; undefined if there
 * were none.
 */
export async function readQuicCongestion(path: string): Promise<QuicCongestion | undefined> {
  for await (const event of readNetLogEvents(path, ['QUIC_CONGESTION_CONTROL_CONFIGURED'])) {
    const algorithm = textIn(event, 'congestion_control_type');
    const window = numberIn(event, 'initial_congestion_window');
    if (algorithm === undefined) continue;
    return window === undefined ? { algorithm } : { algorithm, initialWindowPackets: window };
  }
  return undefined;
}
