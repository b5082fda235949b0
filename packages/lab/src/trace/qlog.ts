import { basename } from 'node:path';
import { z } from 'zod';
import { readLines } from './read-lines.js';

/** The server's record of one request of a QUIC connection. */
export interface ServerRequest {
  readonly stream: number;
  readonly requestAt: number;
  readonly responseAt?: number;
}

/**
 * The part of a server's qlog file that is read. Times are milliseconds since the connection began
 * there.
 */
export interface ServerTrace {
  /** The client's first choice of the server's connection ID. */
  readonly connectionId: string;
  readonly requests: readonly ServerRequest[];
  /** Times at which the server declared its packets lost. */
  readonly lost: readonly number[];
  /** Times at which the transport accepted no more of a stream. */
  readonly blocked: readonly {
    readonly at: number;
    readonly stream: number;
    readonly waitingBytes: number;
  }[];
  readonly window: readonly { readonly at: number; readonly bytes: number }[];
  /** End of slow start: when its threshold was first set. */
  readonly slowStartEnd?: number;
}

const record = z.object({
  time: z.number(),
  name: z.string(),
  data: z.record(z.string(), z.unknown()),
});
const streamed = z.looseObject({
  stream_id: z.number(),
  frame: z.looseObject({ frame_type: z.string() }),
});
const blockedData = z.looseObject({ stream_id: z.number(), waiting_bytes: z.number() });
const metrics = z.looseObject({
  congestion_window: z.number().optional(),
  ssthresh: z.number().optional(),
});

/** A threshold that was never set is the largest number possible. */
const NO_THRESHOLD = 2 ** 62;

const WANTED = /"name":"(http:frame_(parsed|created)|recovery:|pronghorn:stream_blocked)/;

/**
 * Reads a server's qlog file (docs/qlog.md) line by line. Incomplete and unrelated lines are
 * skipped.
 */
export async function readServerTrace(path: string): Promise<ServerTrace> {
  const requests = new Map<number, { stream: number; requestAt: number; responseAt?: number }>();
  const lost: number[] = [];
  const blocked: { at: number; stream: number; waitingBytes: number }[] = [];
  const window: { at: number; bytes: number }[] = [];
  let slowStartEnd: number | undefined;
  for await (const line of readLines(path)) {
    if (!WANTED.test(line)) continue;
    const event = parse(line);
    if (event === undefined) continue;
    const { time: at, name, data } = event;
    if (name === 'recovery:packet_lost') lost.push(at);
    if (name === 'recovery:metrics_updated') {
      const { congestion_window: bytes, ssthresh } = metrics.safeParse(data).data ?? {};
      if (bytes !== undefined && window.at(-1)?.bytes !== bytes) window.push({ at, bytes });
      if (ssthresh !== undefined && ssthresh < NO_THRESHOLD) slowStartEnd ??= at;
    }
    if (name === 'pronghorn:stream_blocked') {
      const found = blockedData.safeParse(data).data;
      if (found !== undefined)
        blocked.push({ at, stream: found.stream_id, waitingBytes: found.waiting_bytes });
    }
    const frame = streamed.safeParse(data).data;
    if (frame?.frame.frame_type !== 'headers') continue;
    const { stream_id: stream } = frame;
    const known = requests.get(stream);
    if (name === 'http:frame_parsed' && known === undefined)
      requests.set(stream, { stream, requestAt: at });
    if (name === 'http:frame_created' && known !== undefined) known.responseAt ??= at;
  }
  return {
    connectionId: basename(path).replace(/_.*$/, ''),
    requests: [...requests.values()],
    lost,
    blocked,
    window,
    ...(slowStartEnd !== undefined && { slowStartEnd }),
  };
}

function parse(line: string): z.infer<typeof record> | undefined {
  try {
    // The character RS precedes each record of a JSON text sequence.
    return record.parse(JSON.parse(line.slice(line.indexOf('{'))));
  } catch {
    return undefined;
  }
}

/** Returns the trace with times relative to `start`. */
export function shifted(trace: ServerTrace, start: number): ServerTrace {
  const { requests, lost, blocked, window, slowStartEnd } = trace;
  return {
    ...trace,
    requests: requests.map((each) => ({
      ...each,
      requestAt: each.requestAt + start,
      ...(each.responseAt !== undefined && { responseAt: each.responseAt + start }),
    })),
    lost: lost.map((at) => at + start),
    blocked: blocked.map((each) => ({ ...each, at: each.at + start })),
    window: window.map((each) => ({ ...each, at: each.at + start })),
    ...(slowStartEnd !== undefined && { slowStartEnd: slowStartEnd + start }),
  };
}
