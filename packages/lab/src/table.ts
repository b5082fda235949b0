import type { Campaign } from './campaign-file.js';
import { thinkTimesWarning } from './capture/think-time.js';
import { comparisonColumns, comparisonRows } from './compare/table.js';
import { comparisonNotes, modesInWords } from './compare/words.js';
import { latePaintNotes, paintNotes } from './paint-notes.js';
import { blockInWords } from './progress.js';
import type { Protocol } from './plan.js';
import { severalPages, type Cell, type Results } from './results.js';
import { boundedFrom, quantileRanks } from './statistics/quantile-interval.js';
import { distinctFrom, rankInWords, type Figure } from './statistics.js';

const COLUMNS = [
  'profile',
  'page',
  'arm',
  'median',
  'mean',
  'p90',
  'p99',
  'min',
  'max',
  'n',
  'completed',
  'invalid',
] as const;
const TEXT_COLUMNS = 3;
/** Stands for a load that did not complete where a percentile falls on one. */
export const CENSORED = 'none';

/** The table: a head, and one row per profile, page and arm, as text, with seconds to four decimals. */
export interface Table {
  readonly head: readonly string[];
  /** How many columns from the left are names and not figures. */
  readonly names: number;
  readonly rows: readonly (readonly string[])[];
}

/** The column of the page is left out where there is one page only. */
export function tableOf(cells: readonly Cell[]): Table {
  if (severalPages(cells)) return { head: COLUMNS, names: TEXT_COLUMNS, rows: cells.map(rowOf) };
  const without = (row: readonly string[]): string[] => row.filter((_, at) => at !== COLUMNS.indexOf('page'));
  return { head: without(COLUMNS), names: TEXT_COLUMNS - 1, rows: cells.map((cell) => without(rowOf(cell))) };
}

function rowOf({ profile, page, arm, summary, invalid }: Cell): string[] {
  const meanMark = summary.completed < summary.n ? '*' : '';
  return [
    profile,
    page,
    arm,
    figure(summary.median),
    summary.mean === undefined ? '-' : `${summary.mean.toFixed(4)}${meanMark}`,
    figure(summary.p90),
    figure(summary.p99),
    figure(summary.min),
    figure(summary.max),
    String(summary.n),
    String(summary.completed),
    String(invalid),
  ];
}

/** What has to be known to read the table, one sentence a line. */
export function tableNotes(campaign: Campaign, results: Results): string[] {
  const { cells } = results;
  const several = severalPages(cells);
  const notes = [
    'Seconds from the start of navigation to the end of the load event. n counts valid loads; invalid ones are counted apart.',
    ...percentileNote(cells),
    ...cells.flatMap((cell) =>
      cell.modes === undefined ? [] : [modesInWords(cellInWords(cell, several), cell.modes)],
    ),
  ];
  if (cells.some(({ summary }) => summary.completed < summary.n)) {
    notes.push(
      `"${CENSORED}": the load at this rank did not complete (limit ${campaign.timeoutSeconds} s); ` +
        'such a load ranks as slower than all that did.',
      '*: mean of the completed loads only.',
    );
  }
  for (const { arm, reason } of campaign.leftOut ?? []) notes.push(`${arm} was left out: ${reason}.`);
  for (const { name, requests, uncounted = 0 } of campaign.pages) {
    if (uncounted === 0) continue;
    notes.push(
      `${several ? `Page ${name}: a` : 'A'} load is judged by the ${requests ?? 0} requests that were recorded before the load event, ` +
        `not by ${uncounted} others, which came after it or were for the icon.`,
    );
  }
  for (const [server, { loads, cold }] of results.cold) {
    const which =
      cold === loads
        ? `All arms of the server ${server} ran cold`
        : `${cold} of ${loads} loads of the server ${server} ran cold`;
    notes.push(
      `${which}: it answered no request before the load. The first handshake of a process is slower than later ones, over QUIC more so.`,
    );
  }
  notes.push(...paintNotes(results));
  for (const { name, thinkTimeCounts } of campaign.pages) {
    const wrong = thinkTimeCounts && thinkTimesWarning(thinkTimeCounts);
    if (wrong !== undefined) notes.push(`Think times${several ? ` of page ${name}` : ''}: ${wrong}.`);
  }
  if (campaign.watched) {
    notes.push('Each load was watched, which slows it: these figures compare only with others that were taken so.');
  }
  if (campaign.sittings.some(({ sharedMachine }) => sharedMachine)) notes.push(sharedInWords(results.shared));
  if (campaign.status === 'interrupted')
    notes.push('The campaign was interrupted: the table shows the loads until then.');
  return notes;
}

/** What a machine that was shared may have done to the times. */
export function sharedInWords({ loads, beside }: Results['shared']): string {
  const seen =
    beside === 0
      ? 'no other campaign was seen to'
      : `other campaigns did so beside ${beside} of the ${loads} loads, which makes them slower unevenly`;
  return `The machine was shared (--share-machine), so that others could measure on it at the same time: ${seen}.`;
}

/** Each load that is not valid or did not complete, with its reasons. */
export function troubleLines(results: Results): string[] {
  const several = severalPages(results.cells);
  return results.cells.flatMap(({ profile, page, arm, rehearsals, loads }) =>
    [...rehearsals, ...loads].flatMap(({ load, block, outcome, reason, valid, invalidReasons }) => {
      const place = several ? `${profile}, ${page}` : profile;
      const where = `load ${load} (${place}, ${blockInWords(block)}, ${arm})`;
      if (!valid) return [`${where} is invalid: ${invalidReasons.join('; ')}`];
      return outcome === 'completed' ? [] : [`${where} did not complete: ${outcome}: ${reason ?? ''}`];
    }),
  );
}

const PROTOCOL_NAMES: Readonly<Record<Protocol, string>> = {
  http: 'HTTP/1.1 in clear',
  h1: 'HTTP/1.1',
  h2: 'HTTP/2',
  h3: 'HTTP/3',
  auto: "the browser's choice of HTTP/2 and HTTP/3",
};

/** What stands before all figures: which arms did not load the page each time, the worst first, and why. */
export function failureLines({ cells }: Results): string[] {
  const several = severalPages(cells);
  const share = ({ summary }: Cell): number => summary.completed / summary.n;
  const failing = cells.filter(({ summary }) => summary.completed < summary.n).sort((a, b) => share(a) - share(b));
  return failing.map((cell) => {
    const { protocol, summary, loads } = cell;
    const over = protocol === undefined ? '' : ` over ${PROTOCOL_NAMES[protocol]}`;
    const faults = loads.flatMap(({ valid, fault }) => (valid && fault !== undefined ? [fault] : []));
    const counted = [...new Set(faults)].map(
      (fault) => [faults.filter((each) => each === fault).length, fault] as const,
    );
    const why = counted.sort(([one], [other]) => other - one).map(([count, fault]) => `${count} × ${fault}`);
    return `${cellInWords(cell, several)}: ${summary.completed} of ${summary.n} loaded${over} (${why.join(', ')})`;
  });
}

/** The tables for a terminal. */
export function textTable(campaign: Campaign, results: Results): string {
  const { comparisons } = results.comparisons;
  const notes = [...tableNotes(campaign, results), ...troubleLines(results)];
  const { head, names, rows } = tableOf(results.cells);
  const failures = failureLines(results);
  const first = failures.length === 0 ? [] : [failures.join('\n')];
  const parts = [...first, aligned(head, rows, names), notes.join('\n')];
  if (comparisons.length > 0) {
    const columns = comparisonColumns(comparisons);
    parts.push(
      aligned(columns, comparisonRows(comparisons, true), columns.length),
      [...comparisonNotes(results.comparisons), ...latePaintNotes(results)].join('\n'),
    );
  }
  return `${parts.join('\n\n')}\n`;
}

/** The tables in Markdown. */
export function markdownTable(campaign: Campaign, results: Results): string {
  const { comparisons } = results.comparisons;
  const listed = (notes: readonly string[]): string =>
    notes.map((note) => `- ${note.replaceAll('*', '\\*')}`).join('\n');
  const { head, names, rows } = tableOf(results.cells);
  const failures = failureLines(results);
  const first = failures.length === 0 ? [] : [listed(failures)];
  const parts = [
    ...first,
    piped(head, rows, names),
    listed([...tableNotes(campaign, results), ...troubleLines(results)]),
  ];
  if (comparisons.length > 0) {
    const columns = comparisonColumns(comparisons);
    parts.push(
      piped(columns, comparisonRows(comparisons, true), columns.length),
      listed([...comparisonNotes(results.comparisons), ...latePaintNotes(results)]),
    );
  }
  return `${parts.join('\n\n')}\n`;
}

/** Columns of one width each, the first ones to the left, the others to the right. */
function aligned(columns: readonly string[], body: readonly (readonly string[])[], textColumns: number): string {
  const rows = [columns, ...body];
  const widths = columns.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((text, at) => (at < textColumns ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0)))
      .join('  ')
      .trimEnd();
  return rows.map(line).join('\n');
}

function piped(columns: readonly string[], body: readonly (readonly string[])[], textColumns: number): string {
  const line = (row: readonly string[]): string => `| ${row.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = columns.map((_, at) => (at < textColumns ? '---' : '---:'));
  return [columns, rule, ...body].map(line).join('\n');
}

/** Says for which n a percentile is simply the largest value, which no digit of it shows. */
function percentileNote(cells: readonly Cell[]): string[] {
  const counts = [...new Set(cells.map(({ summary }) => summary.n))].filter((n) => n > 0).sort((a, b) => a - b);
  if (counts.length === 0) return [];
  const words = (percent: number): string =>
    `p${percent} = ${[...new Set(counts.map((n) => rankInWords(percent, n)))].join(', ')}`;
  const few =
    (counts[0] as number) < distinctFrom(99) ? `; p99 says more than the maximum from n = ${distinctFrom(99)} on` : '';
  return [`Percentiles by nearest rank: ${words(90)}; ${words(99)}${few}.`, ...intervalNotes(cells)];
}

function cellInWords({ profile, page, arm }: Cell, several: boolean): string {
  return `${arm} on ${profile}${several ? `/${page}` : ''}`;
}

/** The 95 % intervals of median, p90 and p99 of each cell, as far as so many loads have them. */
function intervalNotes(cells: readonly Cell[]): string[] {
  const several = severalPages(cells);
  const lines = cells.flatMap((cell) => {
    const { loads, summary } = cell;
    if (quantileRanks(summary.n, 50).high === undefined) return [];
    const sorted = loads
      .flatMap(({ valid, time }) => (valid && time !== undefined ? [time] : []))
      .sort((a, b) => a - b);
    const end = (rank: number): string => sorted[rank - 1]?.toFixed(4) ?? CENSORED;
    const intervals = [50, 90, 99].map((percent) => {
      const { low, high } = quantileRanks(summary.n, percent);
      const name = percent === 50 ? 'median' : `p${percent}`;
      return `${name} ${low === undefined ? '0' : end(low)} to ${high === undefined ? 'unbounded' : end(high)}`;
    });
    return [`${cellInWords(cell, several)}, 95 %: ${intervals.join(', ')}.`];
  });
  if (lines.length === 0) return [];
  const few = cells.some(({ summary }) => summary.n > 0 && quantileRanks(summary.n, 99).high === undefined);
  const bound = few ? ` The true p99 has no finite upper bound until n = ${boundedFrom(99)}.` : '';
  return [`Intervals of percentiles are of ranks and suppose no distribution.${bound}`, ...lines];
}

function figure(value: Figure | undefined): string {
  if (value === undefined) return '-';
  return value === 'censored' ? CENSORED : value.seconds.toFixed(4);
}
