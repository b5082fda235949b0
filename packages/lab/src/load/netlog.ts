import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { z } from 'zod';

const EVENT = 'QUIC_CONGESTION_CONTROL_CONFIGURED';

const configured = z.object({
  type: z.number(),
  params: z
    .object({ congestion_control_type: z.string(), initial_congestion_window: z.number().optional() })
    .optional(),
});

export interface QuicCongestion {
  readonly algorithm: string;
  readonly initialWindowPackets?: number;
}

/**
 * Reads from a Chromium NetLog which congestion control its QUIC connections were given, or undefined if it had none.
 *
 * A NetLog has its table of names on the first line and one event on each line after it, so that it is read line by
 * line, and one that lost its end (a browser that was killed) is read as far as it goes.
 */
export async function readQuicCongestion(path: string): Promise<QuicCongestion | undefined> {
  let typeNumber: number | undefined;
  const stream = createReadStream(path, 'utf8');
  for await (const line of createInterface({ input: stream, crlfDelay: Infinity })) {
    typeNumber ??= numberOfEvent(line);
    if (typeNumber === undefined || !line.includes(`"type":${typeNumber}`)) continue;
    const event = parseEvent(line);
    if (event?.type !== typeNumber || event.params === undefined) continue;
    stream.destroy();
    const { congestion_control_type: algorithm, initial_congestion_window: window } = event.params;
    return window === undefined ? { algorithm } : { algorithm, initialWindowPackets: window };
  }
  return undefined;
}

function numberOfEvent(line: string): number | undefined {
  const found = new RegExp(`"${EVENT}":(\\d+)`).exec(line)?.[1];
  return found === undefined ? undefined : Number(found);
}

function parseEvent(line: string): z.infer<typeof configured> | undefined {
  try {
    return configured.parse(JSON.parse(line.trim().replace(/,$/, '')));
  } catch {
    return undefined; // the torn last line, or an event of another shape
  }
}
