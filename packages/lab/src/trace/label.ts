/** Kinds of labels of a load. The rule for each is documented with its function in `rules/`. */
export const LABEL_KINDS = [
  'syn-retransmitted',
  'syn-ack-retransmitted',
  'initial-lost',
  'handshake-packet-lost',
  'hol-stall',
  'flow-control-stall',
  'race-won-by-tcp',
  'fell-back-to-tcp',
  'rto',
  'tail-loss',
  'slow-start-end',
  'cpu-bound',
  'network-bound',
  'slow-server',
] as const;

export type LabelKind = (typeof LABEL_KINDS)[number];

/** A rule's finding in a load. */
export interface Label {
  readonly kind: LabelKind;
  /** When it began, in seconds since navigation start; absent for findings about the whole load. */
  readonly at?: number;
  /** How long it lasted, or what it cost. */
  readonly seconds?: number;
  /** A sentence without a full stop. */
  readonly detail: string;
  /** The flow: `tcp 35346`, the protocol and the client's port. */
  readonly connection?: string;
  readonly streams?: number;
}

/** Converts milliseconds to seconds, rounded to the microsecond. */
export function toSeconds(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1e6;
}

/** Returns "1 stream", "7 streams". */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
