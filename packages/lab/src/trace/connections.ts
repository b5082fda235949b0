import type { NetLogTrace } from './netlog.js';
import type { Flow } from './packets.js';
import type { TimelineRequest } from './requests.js';

/**
 * Assigns each request the flow that carried it.
 *
 * The NetLog has the client's port of each connection. Without it connections are matched by their
 * traffic: of a protocol's flows, the one with the most downstream bytes belongs to the connection
 * with the most bytes, and so on. That is certain for one connection, and a guess for several of a
 * kind.
 */
export function joinConnections(
  requests: readonly TimelineRequest[],
  flows: readonly Flow[],
  netLog: NetLogTrace | undefined,
): TimelineRequest[] {
  const names = new Map<number, string>();
  for (const { id, nearPort, protocol } of netLog?.connections ?? []) {
    const transport = protocol === 'h3' ? 'udp' : 'tcp';
    const flow = flows.find((each) => each.protocol === transport && each.nearPort === nearPort);
    if (flow !== undefined) names.set(id, flow.name);
  }
  for (const transport of ['tcp', 'udp'] as const) guess(transport, requests, flows, names);
  return requests.map((request) => {
    const connection =
      request.connectionId === undefined ? undefined : names.get(request.connectionId);
    return connection === undefined ? request : { ...request, connection };
  });
}

function guess(
  transport: 'tcp' | 'udp',
  requests: readonly TimelineRequest[],
  flows: readonly Flow[],
  names: Map<number, string>,
): void {
  const bytes = new Map<number, number>();
  for (const { connectionId, protocol, bytes: size = 0 } of requests) {
    if (connectionId === undefined || protocol === undefined || names.has(connectionId)) continue;
    if ((protocol === 'h3' ? 'udp' : 'tcp') !== transport) continue;
    bytes.set(connectionId, (bytes.get(connectionId) ?? 0) + size);
  }
  const taken = new Set(names.values());
  const free = flows
    .filter(({ protocol, name }) => protocol === transport && !taken.has(name))
    .map((flow) => ({ name: flow.name, bytes: bytesDown(flow) }))
    .sort((a, b) => b.bytes - a.bytes);
  const ids = [...bytes].sort(([, a], [, b]) => b - a).map(([id]) => id);
  ids.forEach((id, rank) => {
    const flow = free[rank];
    if (flow !== undefined) names.set(id, flow.name);
  });
}

function bytesDown({ packets }: Flow): number {
  return packets.reduce(
    (sum, { way, payload, left }) => sum + (way === 'down' && left !== undefined ? payload : 0),
    0,
  );
}
