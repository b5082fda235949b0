import { toSeconds, type Label } from '../label.js';
import { isLost, type Flow, type Packet, type Way } from '../packets.js';
import type { LoadTimeline } from '../timeline.js';

/**
 * `syn-retransmitted`, `syn-ack-retransmitted`: a TCP connection has more than one packet with the
 * flags S (up) or SA (down). One label for each packet after the first; `seconds` is the time since
 * the first.
 */
export function synRetransmissions({ flows, requests }: LoadTimeline): Label[] {
  return flows.flatMap((flow) => {
    const syns = flow.packets.filter(({ way, kind }) => way === 'up' && isSyn(kind));
    const answers = flow.packets.filter(({ way, kind }) => way === 'down' && isSyn(kind));
    const used = requests.some(({ connection }) => connection === flow.name);
    const labels = [
      ...retransmissionLabels(flow, syns, 'syn-retransmitted', () =>
        whySynAgain(syns[0], answers[0]),
      ),
      ...retransmissionLabels(flow, answers, 'syn-ack-retransmitted', () =>
        answers.some(isLost)
          ? 'the link had lost the SYN-ACK'
          : 'no acknowledgement of the SYN-ACK had arrived',
      ),
    ];
    return used
      ? labels
      : labels.map((label) => ({
          ...label,
          detail: `${label.detail}; the connection carried no request`,
        }));
  });
}

function isSyn(kind: string): boolean {
  return kind.includes('S');
}

function retransmissionLabels(
  flow: Flow,
  packets: readonly Packet[],
  kind: 'syn-retransmitted' | 'syn-ack-retransmitted',
  why: () => string,
): Label[] {
  const first = packets[0];
  if (flow.protocol !== 'tcp' || first === undefined) return [];
  return packets.slice(1).map(({ arrived }) => {
    const after = arrived - first.arrived;
    const what = kind === 'syn-retransmitted' ? 'SYN' : 'SYN-ACK';
    return {
      kind,
      at: toSeconds(arrived),
      seconds: toSeconds(after),
      detail: `${what} retransmitted after ${after.toFixed(0)} ms: ${why()}`,
      connection: flow.name,
    };
  });
}

function whySynAgain(syn: Packet | undefined, answer: Packet | undefined): string {
  if (syn !== undefined && isLost(syn)) return 'the link had lost the first one';
  if (answer !== undefined && isLost(answer)) return 'the link had lost the SYN-ACK';
  return 'no answer had arrived';
}

const QUIC_HANDSHAKE = {
  initial: { kind: 'initial-lost', name: 'Initial' },
  handshake: { kind: 'handshake-packet-lost', name: 'Handshake' },
  '0rtt': { kind: 'handshake-packet-lost', name: '0-RTT' },
  retry: { kind: 'handshake-packet-lost', name: 'Retry' },
} as const;

/**
 * `initial-lost`, `handshake-packet-lost` over QUIC: the link lost a datagram whose first packet is
 * an Initial, or a Handshake, 0-RTT or Retry packet. `seconds` is the time until the same end sent
 * a datagram of that kind again more than half a round trip later, its retransmission; it is absent
 * if there was none (the data arrived otherwise, or never).
 */
export function quicHandshakeLosses({ flows, baseRoundTripMs }: LoadTimeline): Label[] {
  const quic = flows.filter(({ protocol, farPort }) => protocol === 'udp' && farPort !== 53);
  return quic.flatMap((flow) =>
    flow.packets.filter(isLost).flatMap((packet): Label[] => {
      const what = QUIC_HANDSHAKE[packet.kind as keyof typeof QUIC_HANDSHAKE] as
        (typeof QUIC_HANDSHAKE)[keyof typeof QUIC_HANDSHAKE] | undefined;
      if (what === undefined) return [];
      const next = flow.packets.find(
        ({ way, kind, arrived }) =>
          way === packet.way &&
          kind === packet.kind &&
          arrived > packet.arrived + (baseRoundTripMs ?? 0) / 2,
      );
      return [lostLabel(what, flow, packet, next)];
    }),
  );
}

function lostLabel(
  { kind, name }: (typeof QUIC_HANDSHAKE)[keyof typeof QUIC_HANDSHAKE],
  flow: Flow,
  packet: Packet,
  next: Packet | undefined,
): Label {
  const after = next === undefined ? undefined : next.arrived - packet.arrived;
  const then = after === undefined ? '' : `; the next one was sent after ${after.toFixed(0)} ms`;
  return {
    kind,
    at: toSeconds(packet.arrived),
    ...(after !== undefined && { seconds: toSeconds(after) }),
    detail: `${name} packet of the ${senderOf(packet.way)} lost (${describeFate(packet)})${then}`,
    connection: flow.name,
  };
}

/**
 * `handshake-packet-lost` over TCP: the link lost a packet with payload, in either direction,
 * before the connection's TLS handshake was done. The browser reports that time for connections
 * that carried a request; others have no label. `seconds` is the time until the same bytes reached
 * the link again.
 */
export function tlsHandshakeLosses({ flows, requests, netLog }: LoadTimeline): Label[] {
  return flows.flatMap((flow) => {
    if (flow.protocol !== 'tcp') return [];
    const ends = requests.flatMap(({ connection, connectEnd }) =>
      connection === flow.name && connectEnd !== undefined ? [connectEnd] : [],
    );
    const logged = netLog?.connections.find(({ nearPort }) => nearPort === flow.nearPort)?.handshake
      .to;
    const until = logged ?? (ends.length === 0 ? undefined : Math.min(...ends));
    if (until === undefined) return [];
    return flow.packets
      .filter((packet) => isLost(packet) && packet.payload > 0 && packet.arrived < until)
      .map((packet): Label => {
        const next = flow.packets.find(
          ({ way, arrived, sequence, payload }) =>
            way === packet.way &&
            arrived > packet.arrived &&
            sequence === packet.sequence &&
            payload > 0,
        );
        const after = next === undefined ? undefined : next.arrived - packet.arrived;
        const then = after === undefined ? '' : `; retransmitted after ${after.toFixed(0)} ms`;
        return {
          kind: 'handshake-packet-lost',
          at: toSeconds(packet.arrived),
          ...(after !== undefined && { seconds: toSeconds(after) }),
          detail: `packet of the ${senderOf(packet.way)}'s TLS handshake lost (${describeFate(packet)})${then}`,
          connection: flow.name,
        };
      });
  });
}

export function senderOf(way: Way): string {
  return way === 'up' ? 'client' : 'server';
}

const FATES: Readonly<Record<string, string>> = {
  lost: 'by the link',
  queue_full: 'the queue was full',
  policed: 'policed',
  blocked: 'blocked',
  outage: 'in an outage',
};

export function describeFate({ fate }: Packet): string {
  return FATES[fate] ?? fate;
}
