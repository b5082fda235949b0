import { markdownTable } from '../markdown-table.js';
import { ALIKE_WITHIN, type Conformance, type Controller, type Range, type Side } from './conformance.js';

export const HEAD = [
  'controller',
  'over',
  'throughput, Mbit/s',
  'queue delay, ms',
  'lost, %',
  'first second, Mbit/s',
  'initial window',
  'among themselves',
  'TCP to QUIC',
  'verdict',
];
/** Columns that are names. */
export const NAMES = 2;

/** A row for each protocol of each controller. */
export function rowsOf(controllers: readonly Controller[]): string[][] {
  return controllers.flatMap(({ congestion, h2, h3, distance, verdict }) => [
    [congestion, 'TCP (h2)', ...sideInWords(h2), rangeInWords(distance, 3), verdict],
    ['', 'QUIC (h3)', ...sideInWords(h3), '', ''],
  ]);
}

function sideInWords(side: Side | undefined): string[] {
  if (side === undefined) return Array<string>(6).fill('–');
  const { throughputMbit, queueDelayMs, lostPercent, firstSecondMbit, within } = side;
  return [
    rangeInWords(throughputMbit, 2),
    rangeInWords(queueDelayMs, 1),
    rangeInWords(lostPercent, 2),
    rangeInWords(firstSecondMbit, 2),
    windowInWords(side),
    rangeInWords(within, 3),
  ];
}

function windowInWords({ initialWindowBytes, initialWindowPackets }: Side): string {
  if (initialWindowBytes === undefined || initialWindowPackets === undefined) return '–';
  return `${rangeInWords(initialWindowBytes, 0)} B, ${rangeInWords(initialWindowPackets, 0)} packets`;
}

/** "19.53 (19.50–19.60)", or one number where there is one. */
function rangeInWords(range: Range | undefined, digits: number): string {
  if (range === undefined) return '–';
  const [median, min, max] = [range.median, range.min, range.max].map((value) => value.toFixed(digits));
  return min === max ? `${median}` : `${median} (${min}–${max})`;
}

/** What has to be known to read the table. */
export function notesOf(conformance: Conformance): string[] {
  const { link, seconds, repeats, seed, transfers, status, pronghorn } = conformance;
  const invalid = transfers.filter(({ valid }) => !valid);
  return [
    `One download at a time of about ${seconds} s over ${link.rateMbit} Mbit/s with 50 ms round trip and a queue of ${link.queueMs} ms, ` +
      `${repeats} of each, the link's seed another one for each; pronghorn ${pronghorn.version}, seed ${seed}.`,
    'Figures: median (least–most) of the transfers. Throughput, queue delay (median of the packets) and distance are of whole seconds from the ' +
      'second one on; what is lost is lost at the full queue.',
    'Initial window: payload that was sent before the first acknowledgement of any of it came back, session tickets included.',
    'Distance: energy distance of the seconds, each a point (throughput by the link’s rate, mean queue delay by that of a full queue): ' +
      'E|X − Y| − (E|X − X′| + E|Y − Y′|) / 2. 0 is alike; two narrow clouds have the distance at which they lie.',
    `"alike": not further apart than ${ALIKE_WITHIN}, or than two transfers of one protocol are.`,
    ...(conformance.sharedMachine
      ? ['The machine was shared (--share-machine): others may have measured on it at the same time.']
      : []),
    ...(status === 'finished' ? [] : ['The check did not run to its end.']),
    ...invalid.map(
      ({ congestion, protocol, repeat, invalidReasons }) =>
        `Left out: transfer ${repeat} of ${congestion} over ${protocol}: ${invalidReasons.join('; ')}.`,
    ),
  ];
}

/** `conformance.md`. */
export function conformanceMarkdown(conformance: Conformance): string {
  const table = markdownTable(HEAD, rowsOf(conformance.controllers), NAMES);
  const notes = notesOf(conformance).map((note) => `- ${note}`);
  return `# Congestion controllers over TCP and over QUIC\n\n${table}\n\n${notes.join('\n')}\n`;
}
