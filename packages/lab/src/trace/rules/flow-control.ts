import { toSeconds, type Label } from '../label.js';
import type { NetLogConnection } from '../netlog.js';
import type { LoadTimeline } from '../timeline.js';

/** Minimum total wait of a connection that is reported. */
const WORTH_MS = 20;

/**
 * `flow-control-stall` according to the kernel: over a connection's lifetime the server's socket
 * was limited by the client's window, or by its own send buffer, for at least 20 ms in total
 * (TCP_INFO's `rwnd_limited` and `sndbuf_limited`). `at` is the first sample in which the total had
 * grown.
 */
export function limitedSockets({ tcpInfo, flows }: LoadTimeline): Label[] {
  const LIMITS = [
    { key: 'receiveWindowLimitedMs', what: "the client's receive window" },
    { key: 'sendBufferLimitedMs', what: "the server's send buffer" },
  ] as const;
  return flows.flatMap((flow) => {
    if (flow.protocol !== 'tcp') return [];
    const rows = tcpInfo.filter(({ end, nearPort }) => end === 'far' && nearPort === flow.nearPort);
    return LIMITS.flatMap(({ key, what }): Label[] => {
      const total = rows.at(-1)?.[key] ?? 0;
      const first = rows.find((row) => row[key] > 0);
      if (first === undefined || total < WORTH_MS) return [];
      return [
        {
          kind: 'flow-control-stall',
          at: toSeconds(first.at),
          seconds: toSeconds(total),
          detail: `the server waited ${total.toFixed(0)} ms for ${what} (TCP_INFO)`,
          connection: flow.name,
        },
      ];
    });
  });
}

/**
 * `flow-control-stall` according to QUIC: the server sent DATA_BLOCKED or STREAM_DATA_BLOCKED
 * (NetLog). It lasts until the client raised a limit of that connection or stream; `seconds` is
 * absent if it never did.
 */
export function blockedFrames({ netLog, flows }: LoadTimeline): Label[] {
  return (netLog?.connections ?? []).flatMap((connection) => {
    const name = flows.find(
      ({ protocol, nearPort }) =>
        protocol === (connection.protocol === 'h3' ? 'udp' : 'tcp') &&
        nearPort === connection.nearPort,
    )?.name;
    return serverBlocked(connection).map(({ at, until, stream }): Label => {
      const what = stream === undefined ? 'the connection' : `stream ${stream}`;
      return {
        kind: 'flow-control-stall',
        at: toSeconds(at),
        ...(until !== undefined && { seconds: toSeconds(until - at) }),
        detail: `the server was blocked by the limit of ${what} (${stream === undefined ? 'DATA_BLOCKED' : 'STREAM_DATA_BLOCKED'})`,
        ...(name !== undefined && { connection: name }),
        ...(stream !== undefined && { streams: 1 }),
      };
    });
  });
}

function serverBlocked({
  flowControl,
  protocol,
}: NetLogConnection): { at: number; until?: number; stream?: number }[] {
  if (protocol !== 'h3') return [];
  return flowControl
    .filter(({ frame, from }) => frame === 'blocked' && from === 'server')
    .map(({ at, stream }) => {
      const raised = flowControl.find(
        (each) =>
          each.frame === 'window-update' &&
          each.from === 'client' &&
          each.stream === stream &&
          each.at >= at,
      );
      return {
        at,
        ...(raised !== undefined && { until: raised.at }),
        ...(stream !== undefined && { stream }),
      };
    });
}
