import { markdownTable } from '../report/markdown-table.js';
import {
  ALIKE_WITHIN,
  type Conformance,
  type Controller,
  type Range,
  type Side,
} from './conformance.js';

export const HEAD = [
  'controller',
  'over',
  'throughput, Mbit/s',
  'queue delay, ms',
  'lost, %',
  'first second, Mbit/s',
  'initial window',
  'within protocol',
  'TCP to QUIC',
  'verdict',
];
/** Number of columns that are names. */
export const NAMES = 2;

/** Returns one row per protocol of each controller. */
export function rowsOf(controllers: readonly Controller[]): string[][] {
  return controllers.flatMap(({ congestion, h2, h3, distance, verdict }) => [
    [congestion, 'TCP (h2)', ...sideCells(h2), formatRange(distance, 3), verdict],
    ['', 'QUIC (h3)', ...sideCells(h3), '', ''],
  ]);
}

function sideCells(side: Side | undefined): string[] {
  if (side === undefined) return Array<string>(6).fill('–');
  const { throughputMbit, queueDelayMs, lostPercent, firstSecondMbit, within } = side;
  return [
    formatRange(throughputMbit, 2),
    formatRange(queueDelayMs, 1),
    formatRange(lostPercent, 2),
    formatRange(firstSecondMbit, 2),
    formatWindow(side),
    formatRange(within, 3),
  ];
}

function formatWindow({ initialWindowBytes, initialWindowPackets }: Side): string {
  if (initialWindowBytes === undefined || initialWindowPackets === undefined) return '–';
  return `${formatRange(initialWindowBytes, 0)} B, ${formatRange(initialWindowPackets, 0)} packets`;
}

/** Formats a range as "19.53 (19.50–19.60)", or as one number for a single value. */
function formatRange(range: Range | undefined, digits: number): string {
  if (range === undefined) return '–';
  const [median, min, max] = [range.median, range.min, range.max].map((value) =>
    value.toFixed(digits),
  );
  return min === max ? `${median}` : `${median} (${min}–${max})`;
}

/** Returns the notes needed to read the table. */
export function notesOf(conformance: Conformance): string[] {
  const { link, seconds, repeats, seed, transfers, status, pronghorn } = conformance;
  const invalid = transfers.filter(({ valid }) => !valid);
  return [
    `One download at a time of about ${seconds} s over ${link.rateMbit} Mbit/s with a 50 ms round trip and a queue of ${link.queueMs} ms, ` +
      `${repeats} of each with different link seeds; pronghorn ${pronghorn.version}, seed ${seed}.`,
    'Figures: median (minimum–maximum) of the transfers. Throughput, queue delay (median of the packets) and distance are over whole seconds from the ' +
      'second one on; losses are drops at the full queue.',
    'Initial window: payload sent before its first acknowledgement arrived, including session tickets.',
    'Distance: energy distance between the seconds, each a point (throughput as a share of the link’s rate, mean queue delay as a share of a full queue’s): ' +
      'E|X − Y| − (E|X − X′| + E|Y − Y′|) / 2. 0 means identical; for two narrow clouds it is the distance between them.',
    `"alike": no further apart than ${ALIKE_WITHIN}, or than two transfers of one protocol.`,
    ...(conformance.sharedMachine
      ? [
          'The machine was shared (--share-machine): other campaigns may have measured on it at the same time.',
        ]
      : []),
    ...(status === 'finished' ? [] : ['The check did not finish.']),
    ...invalid.map(
      ({ congestion, protocol, repeat, invalidReasons }) =>
        `Excluded: transfer ${repeat} of ${congestion} over ${protocol}: ${invalidReasons.join('; ')}.`,
    ),
  ];
}

/** Returns the contents of `conformance.md`. */
export function conformanceMarkdown(conformance: Conformance): string {
  const table = markdownTable(HEAD, rowsOf(conformance.controllers), NAMES);
  const notes = notesOf(conformance).map((note) => `- ${note}`);
  return `# Congestion controllers over TCP and over QUIC\n\n${table}\n\n${notes.join('\n')}\n`;
}
