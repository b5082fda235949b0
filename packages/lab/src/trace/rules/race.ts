import { counted, toSeconds, type Label } from '../label.js';
import type { Flow, Packet } from '../packets.js';
import type { TimelineRequest } from '../requests.js';
import type { LoadTimeline } from '../timeline.js';

/**
 * The fate of QUIC in a load that tried both QUIC and TCP (datagrams with an Initial were sent
 * upstream, and a response came over TCP):
 *
 * - `fell-back-to-tcp`: no response came over HTTP/3 and no datagram of the server arrived at all,
 *   so QUIC does not work on this path. Or responses came over HTTP/3 first, and a request that
 *   started after the first of them used TCP.
 * - `race-won-by-tcp`: the server did answer over QUIC, but the document came over TCP. The Initial
 *   had reached the link before the document's request was sent; otherwise QUIC was discovered too
 *   late to race, and there is no label.
 *
 * `seconds` is the time that the browser waited before it tried TCP: from the first Initial to the
 * SYN of the connection that carried the document; 0 if both started together. After responses over
 * HTTP/3 it is the time from the last datagram that arrived until the start of the request that
 * fell back.
 */
export function races(timeline: LoadTimeline): Label[] {
  const { flows, requests } = timeline;
  const quic = flows.filter(
    ({ protocol, packets }) => protocol === 'udp' && packets.some(isClientInitial),
  );
  const initial = earliest(quic.flatMap(({ packets }) => packets.filter(isClientInitial)));
  const byTcp = requests.filter(({ protocol }) => protocol !== undefined && protocol !== 'h3');
  const document = requests[0];
  if (initial === undefined || byTcp.length === 0 || document === undefined) return [];
  const byQuic = requests.filter(
    ({ protocol, responseStart }) => protocol === 'h3' && responseStart !== undefined,
  );
  const answers = quic.flatMap(({ packets }) =>
    packets.filter(({ way, left }) => way === 'down' && left !== undefined),
  );
  if (byQuic.length > 0 && document.protocol === 'h3') return lateFallback(byQuic, byTcp, answers);
  if ((document.sent ?? 0) < initial.arrived) return [];
  const waited = waitBeforeTcp(initial, flows, document);
  const common = {
    at: toSeconds(initial.arrived),
    ...(waited !== undefined && { seconds: toSeconds(waited) }),
  };
  const wait = waited === undefined ? '' : `; TCP was tried ${waited.toFixed(0)} ms after QUIC`;
  const tail = `${wait}${heldBack(timeline)}`;
  if (answers.length === 0) {
    return [
      { kind: 'fell-back-to-tcp', ...common, detail: `no datagram of the server arrived${tail}` },
    ];
  }
  const later = byQuic.length === 0 ? 'no request' : counted(byQuic.length, 'request');
  return [
    {
      kind: 'race-won-by-tcp',
      ...common,
      detail: `the document came over ${document.protocol ?? 'TCP'} although QUIC was answered${tail}; ${later} used HTTP/3`,
    },
  ];
}

function isClientInitial({ way, kind, farPort }: Packet): boolean {
  return way === 'up' && farPort !== 53 && (kind === 'initial' || kind === '0rtt');
}

function earliest(packets: readonly Packet[]): Packet | undefined {
  return packets.reduce<Packet | undefined>(
    (best, each) => (best && best.arrived <= each.arrived ? best : each),
    undefined,
  );
}

function lateFallback(
  byQuic: readonly TimelineRequest[],
  byTcp: readonly TimelineRequest[],
  answers: readonly Packet[],
): Label[] {
  const began = Math.min(...byQuic.map(({ responseStart = Infinity }) => responseStart));
  const back = byTcp.filter(({ start }) => start > began).sort((a, b) => a.start - b.start)[0];
  if (back === undefined) return [];
  const last = Math.max(
    ...answers.map(({ left = -Infinity }) => left).filter((left) => left <= back.start),
  );
  const silence = Number.isFinite(last) ? back.start - last : undefined;
  return [
    {
      kind: 'fell-back-to-tcp',
      at: toSeconds(back.start),
      ...(silence !== undefined && { seconds: toSeconds(silence) }),
      detail: `${counted(byQuic.length, 'response')} came over HTTP/3, then requests used ${back.protocol ?? 'TCP'}`,
      ...(back.connection !== undefined && { connection: back.connection }),
    },
  ];
}

function waitBeforeTcp(
  initial: Packet,
  flows: readonly Flow[],
  document: TimelineRequest,
): number | undefined {
  const carrier = flows.find(({ name }) => name === document.connection);
  const syn = carrier?.packets.find(({ way, kind }) => way === 'up' && kind.includes('S'));
  return syn === undefined ? undefined : Math.max(0, syn.arrived - initial.arrived);
}

/** Returns the browser's own record of the race for the document. */
function heldBack({ netLog, requests }: LoadTimeline): string {
  const race = netLog?.races.find(
    ({ url, decidedAt }) => url === requests[0]?.url && decidedAt !== undefined,
  );
  if (race === undefined) return '';
  const because = race.because === 'dns_alpn_h3' ? 'an HTTPS record' : 'Alt-Svc';
  const broken = race.markedBroken ? ', which was marked as broken' : '';
  return ` (the browser discovered QUIC by ${because}${broken}, and delayed TCP by ${(race.heldBackMs ?? 0).toFixed(0)} ms)`;
}
