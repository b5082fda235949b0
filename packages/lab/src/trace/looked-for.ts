import { usesQuic, type Protocol } from '../plan.js';
import type { LabelKind } from './label.js';

/** What there was to look at in the loads of an arm. */
export interface Sources {
  readonly protocol: Protocol;
  /** The packets at the link: there are none of a page that was loaded where it is. */
  readonly hasPackets: boolean;
  /** The browser's NetLog, of loads that were watched. */
  readonly hasNetLog: boolean;
}

/** Kinds that belong to one transport: over the other one there is nothing to look for. */
const OF_TCP: readonly LabelKind[] = ['syn-retransmitted', 'syn-ack-retransmitted'];
const OF_QUIC: readonly LabelKind[] = ['initial-lost'];
const OF_CHOICE: readonly LabelKind[] = ['race-won-by-tcp', 'fell-back-to-tcp'];

/** How far the rules could see a kind of label: not at all, or of an arm that has both transports over TCP only. */
export type BlindSpot = 'not looked for' | 'over TCP only';

/**
 * What of a kind the rules could not have found, whatever happened; undefined where they could have found it or there is
 * nothing of the kind. A kind that was not looked for must not read as one that was not there.
 */
export function blindSpot(kind: LabelKind, { protocol, hasPackets, hasNetLog }: Sources): BlindSpot | undefined {
  const quic = usesQuic({ protocol });
  const tcp = protocol !== 'h3';
  if (kind === 'cpu-bound') return undefined;
  if (OF_TCP.includes(kind) && !tcp) return undefined;
  if (OF_QUIC.includes(kind) && !quic) return undefined;
  if (OF_CHOICE.includes(kind) && !(tcp && quic)) return undefined;
  const seen = { tcp: tcp && hasPackets, quic: quic && seesOverQuic(kind, hasPackets, hasNetLog) };
  const blind = {
    tcp: tcp && !seen.tcp && !OF_QUIC.includes(kind),
    quic: quic && !seen.quic && !OF_TCP.includes(kind),
  };
  if (!blind.tcp && !blind.quic) return undefined;
  return seen.tcp ? 'over TCP only' : 'not looked for';
}

function seesOverQuic(kind: LabelKind, hasPackets: boolean, hasNetLog: boolean): boolean {
  // Packet numbers and offsets of QUIC are encrypted: the link's packets do not show which bytes waited for which, nor why
  // something was sent again.
  if (kind === 'hol-stall') return hasNetLog;
  if (kind === 'rto') return false;
  return hasPackets;
}
