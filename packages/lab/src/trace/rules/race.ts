import { counted, toSeconds, type Label } from '../label.js';
import type { Flow, Packet } from '../packets.js';
import type { TimelineRequest } from '../requests.js';
import type { LoadTimeline } from '../timeline.js';

/**
 * What became of QUIC in a load that tried it and TCP both (datagrams with an Initial went up, and a response came by
 * TCP):
 *
 * - `fell-back-to-tcp`, no response came by HTTP/3 and no datagram of the server's arrived at all: QUIC does not work
 *   on this way. Or responses came by HTTP/3 first, and a request that started after the first of them went by TCP.
 * - `race-won-by-tcp`: the server did answer over QUIC, and the document came by TCP all the same. The Initial had
 *   reached the link before the document's request was sent; otherwise QUIC was found too late to race, and nothing is
 *   said.
 *
 * `seconds` is what the browser waited before it tried TCP: from the first Initial to the SYN of the connection that
 * carried the document; 0 where both started together. After responses by HTTP/3 it is the time from the last datagram
 * that arrived until the request that fell back started.
 */
export function races(timeline: LoadTimeline): Label[] {
  const { flows, requests } = timeline;
  const quic = flows.filter(({ protocol, packets }) => protocol === 'udp' && packets.some(isClientInitial));
  const initial = earliest(quic.flatMap(({ packets }) => packets.filter(isClientInitial)));
  const byTcp = requests.filter(({ protocol }) => protocol !== undefined && protocol !== 'h3');
  const document = requests[0];
  if (initial === undefined || byTcp.length === 0 || document === undefined) return [];
  const byQuic = requests.filter(({ protocol, responseStart }) => protocol === 'h3' && responseStart !== undefined);
  const answers = quic.flatMap(({ packets }) =>
    packets.filter(({ way, left }) => way === 'down' && left !== undefined),
  );
  if (byQuic.length > 0 && document.protocol === 'h3') return lateFallback(byQuic, byTcp, answers);
  if ((document.sent ?? 0) < initial.arrived) return [];
  const waited = waitBeforeTcp(initial, flows, document);
  const common = { at: toSeconds(initial.arrived), ...(waited !== undefined && { seconds: toSeconds(waited) }) };
  const wait = waited === undefined ? '' : `; TCP was tried ${waited.toFixed(0)} ms after QUIC`;
  const tail = `${wait}${heldBack(timeline)}`;
  if (answers.length === 0) {
    return [{ kind: 'fell-back-to-tcp', ...common, detail: `no datagram of the server's arrived${tail}` }];
  }
  const later = byQuic.length === 0 ? 'no request' : counted(byQuic.length, 'request');
  return [
    {
      kind: 'race-won-by-tcp',
      ...common,
      detail: `the document came by ${document.protocol ?? 'TCP'} although QUIC was answered${tail}; ${later} went by HTTP/3`,
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
  const last = Math.max(...answers.map(({ left = -Infinity }) => left).filter((left) => left <= back.start));
  const silence = Number.isFinite(last) ? back.start - last : undefined;
  return [
    {
      kind: 'fell-back-to-tcp',
      at: toSeconds(back.start),
      ...(silence !== undefined && { seconds: toSeconds(silence) }),
      detail: `${counted(byQuic.length, 'response')} came by HTTP/3, and then requests went by ${back.protocol ?? 'TCP'}`,
      ...(back.connection !== undefined && { connection: back.connection }),
    },
  ];
}

function waitBeforeTcp(initial: Packet, flows: readonly Flow[], document: TimelineRequest): number | undefined {
  const carrier = flows.find(({ name }) => name === document.connection);
  const syn = carrier?.packets.find(({ way, kind }) => way === 'up' && kind.includes('S'));
  return syn === undefined ? undefined : Math.max(0, syn.arrived - initial.arrived);
}

/** What the browser itself says of the race for the document. */
function heldBack({ netLog, requests }: LoadTimeline): string {
  const race = netLog?.races.find(({ url, decidedAt }) => url === requests[0]?.url && decidedAt !== undefined);
  if (race === undefined) return '';
  const because = race.because === 'dns_alpn_h3' ? 'an HTTPS record' : 'Alt-Svc';
  const broken = race.markedBroken ? ', which was marked as broken' : '';
  return ` (the browser knew of QUIC by ${because}${broken}, and held TCP back for ${(race.heldBackMs ?? 0).toFixed(0)} ms)`;
}
