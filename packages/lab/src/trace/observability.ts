import { usesQuic, type Protocol } from '../campaign/plan.js';
import type { LabelKind } from './label.js';

/** The available sources for the loads of an arm. */
export interface Sources {
  readonly protocol: Protocol;
  /** The packets at the link; there are none for a page that was loaded from its own server. */
  readonly hasPackets: boolean;
  /** The browser's NetLog, for watched loads. */
  readonly hasNetLog: boolean;
}

/** Kinds that exist over one transport only. */
const OF_TCP: readonly LabelKind[] = ['syn-retransmitted', 'syn-ack-retransmitted'];
const OF_QUIC: readonly LabelKind[] = ['initial-lost'];
const OF_CHOICE: readonly LabelKind[] = ['race-won-by-tcp', 'fell-back-to-tcp'];

/**
 * Where the rules could not observe a kind of label: nowhere, or, for an arm with both transports,
 * over TCP only.
 */
export type Unobservable = 'not looked for' | 'over TCP only';

/**
 * Returns where the rules could not have found a kind, whatever happened; undefined if they could
 * have found it or the kind does not exist for the arm. A kind that was not looked for must not be
 * mistaken for one that did not occur.
 */
export function unobservable(
  kind: LabelKind,
  { protocol, hasPackets, hasNetLog }: Sources,
): Unobservable | undefined {
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
  // QUIC's packet numbers and offsets are encrypted: the link's packets do not show which bytes
  // waited for which, or why something was retransmitted.
  if (kind === 'hol-stall') return hasNetLog;
  if (kind === 'rto') return false;
  return hasPackets;
}
