import { LABEL_KINDS, type Label, type LabelKind } from './label.js';
import { cpuBound, networkBound, type LabelContext } from './rules/bounds.js';
import { fixedWindows } from './rules/fixed-window.js';
import { blockedFrames, limitedSockets } from './rules/flow-control.js';
import { quicHandshakeLosses, synRetransmissions, tlsHandshakeLosses } from './rules/handshake.js';
import { quicStalls, tcpStalls } from './rules/head-of-line.js';
import { races } from './rules/race.js';
import { slowStartEnds, tailLosses, timeouts } from './rules/recovery.js';
import { slowServer } from './rules/slow-server.js';
import type { LoadTimeline } from './timeline.js';

type Rule = (timeline: LoadTimeline, context: LabelContext) => Label[];

const RULES: readonly Rule[] = [
  synRetransmissions,
  quicHandshakeLosses,
  tlsHandshakeLosses,
  races,
  tcpStalls,
  quicStalls,
  limitedSockets,
  blockedFrames,
  fixedWindows,
  timeouts,
  tailLosses,
  slowStartEnds,
  slowServer,
  networkBound,
  cpuBound,
];

/**
 * Returns a load's findings in order of time; those about the whole load come last. Findings from
 * before navigation start (a connection made at the browser's start) are dropped unless they are at
 * most a second earlier, since the page may wait for that connection.
 */
export function labelsOf(timeline: LoadTimeline, context: LabelContext = {}): Label[] {
  return RULES.flatMap((rule) => rule(timeline, context))
    .filter(({ at }) => at === undefined || (at >= -1 && at * 1000 <= timeline.end))
    .sort((a, b) => (a.at ?? Infinity) - (b.at ?? Infinity));
}

/** All labels of one kind in a load. */
export interface LabelSummary {
  readonly kind: LabelKind;
  readonly count: number;
  /** The longest one; its number of streams is that of the largest stall. */
  readonly longest: Label;
  readonly seconds: number;
}

/** Returns one summary per kind, in the order of the kinds. */
export function summariseLabels(labels: readonly Label[]): LabelSummary[] {
  return LABEL_KINDS.flatMap((kind) => {
    const those = labels.filter((label) => label.kind === kind);
    const [first] = those;
    if (first === undefined) return [];
    const longest = those.reduce(
      (best, each) => ((each.seconds ?? 0) > (best.seconds ?? 0) ? each : best),
      first,
    );
    const seconds = those.reduce((sum, each) => sum + (each.seconds ?? 0), 0);
    return [{ kind, count: those.length, longest, seconds }];
  });
}
