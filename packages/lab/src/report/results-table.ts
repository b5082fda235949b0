import type { Campaign } from '../campaign/campaign-file.js';
import { thinkTimesWarning } from '../capture/think-time.js';
import { comparisonColumns, comparisonRows } from '../compare/comparison-table.js';
import { comparisonNotes, describeModes } from '../compare/comparison-text.js';
import { latePaintNotes, paintNotes } from './paint-notes.js';
import { describeBlock } from '../campaign/progress.js';
import type { Protocol } from '../campaign/plan.js';
import { severalPages, type Cell, type Results } from './results.js';
import { boundedFrom, quantileRanks } from '../statistics/quantile-interval.js';
import { distinctFrom, describeRank, type Figure } from '../statistics/figures.js';

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
/** Marks a percentile that falls on a load that did not complete. */
export const CENSORED = 'none';

/**
 * The table as text: a header, and one row per profile, page and arm, with seconds to four
 * decimals.
 */
export interface Table {
  readonly head: readonly string[];
  /** Number of columns from the left that are names instead of figures. */
  readonly names: number;
  readonly rows: readonly (readonly string[])[];
}

/** Builds the table; there is no page column if there is only one page. */
export function tableOf(cells: readonly Cell[]): Table {
  if (severalPages(cells)) return { head: COLUMNS, names: TEXT_COLUMNS, rows: cells.map(rowOf) };
  const without = (row: readonly string[]): string[] =>
    row.filter((_, at) => at !== COLUMNS.indexOf('page'));
  return {
    head: without(COLUMNS),
    names: TEXT_COLUMNS - 1,
    rows: cells.map((cell) => without(rowOf(cell))),
  };
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

/** Returns the notes needed to read the table, one per line. */
export function tableNotes(campaign: Campaign, results: Results): string[] {
  const { cells } = results;
  const several = severalPages(cells);
  const notes = [
    'Seconds from the start of navigation to the end of the load event. n counts valid loads; invalid ones are counted separately.',
    ...percentileNote(cells),
    ...cells.flatMap((cell) =>
      cell.modes === undefined ? [] : [describeModes(describeCell(cell, several), cell.modes)],
    ),
  ];
  if (cells.some(({ summary }) => summary.completed < summary.n)) {
    notes.push(
      `"${CENSORED}": the load at this rank did not complete (limit ${campaign.timeoutSeconds} s); ` +
        'such a load ranks as slower than all that did.',
      '*: mean of the completed loads only.',
    );
  }
  for (const { arm, reason } of campaign.leftOut ?? [])
    notes.push(`${arm} was skipped: ${reason}.`);
  for (const { name, requests, uncounted = 0 } of campaign.pages) {
    if (uncounted === 0) continue;
    notes.push(
      `${several ? `Page ${name}: a` : 'A'} load is complete with the ${requests ?? 0} requests that were recorded before the load event; ` +
        `${uncounted} others, after it or for the icon, do not count.`,
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
    if (wrong !== undefined)
      notes.push(`Think times${several ? ` of page ${name}` : ''}: ${wrong}.`);
  }
  if (campaign.watched) {
    notes.push(
      'Each load was watched, which slows it: compare these figures only with those of other watched loads.',
    );
  }
  if (campaign.sittings.some(({ sharedMachine }) => sharedMachine))
    notes.push(describeSharing(results.shared));
  if (campaign.status === 'interrupted')
    notes.push('The campaign was interrupted: the table shows the loads so far.');
  return notes;
}

/** Describes how other campaigns on a shared machine may have affected the times. */
export function describeSharing({ loads, beside }: Results['shared']): string {
  const seen =
    beside === 0
      ? 'no other campaign was observed'
      : `others measured during ${beside} of the ${loads} loads, which slows them unevenly`;
  return `Other campaigns could share the machine (--share-machine): ${seen}.`;
}

/** Lists each load that is invalid or did not complete, with its reasons. */
export function troubleLines(results: Results): string[] {
  const several = severalPages(results.cells);
  return results.cells.flatMap(({ profile, page, arm, rehearsals, loads }) =>
    [...rehearsals, ...loads].flatMap(({ load, block, outcome, reason, valid, invalidReasons }) => {
      const place = several ? `${profile}, ${page}` : profile;
      const where = `load ${load} (${place}, ${describeBlock(block)}, ${arm})`;
      if (!valid) return [`${where} is invalid: ${invalidReasons.join('; ')}`];
      return outcome === 'completed'
        ? []
        : [`${where} did not complete: ${outcome}: ${reason ?? ''}`];
    }),
  );
}

const PROTOCOL_NAMES: Readonly<Record<Protocol, string>> = {
  http: 'HTTP/1.1 without TLS',
  h1: 'HTTP/1.1',
  h2: 'HTTP/2',
  h3: 'HTTP/3',
  auto: "the browser's choice of HTTP/2 and HTTP/3",
};

/**
 * Lists, before all figures, the arms that did not load the page every time, the worst first, and
 * why.
 */
export function failureLines({ cells }: Results): string[] {
  const several = severalPages(cells);
  const share = ({ summary }: Cell): number => summary.completed / summary.n;
  const failing = cells
    .filter(({ summary }) => summary.completed < summary.n)
    .sort((a, b) => share(a) - share(b));
  return failing.map((cell) => {
    const { protocol, summary, loads } = cell;
    const over = protocol === undefined ? '' : ` over ${PROTOCOL_NAMES[protocol]}`;
    const faults = loads.flatMap(({ valid, fault }) =>
      valid && fault !== undefined ? [fault] : [],
    );
    const counted = [...new Set(faults)].map(
      (fault) => [faults.filter((each) => each === fault).length, fault] as const,
    );
    const why = counted
      .sort(([one], [other]) => other - one)
      .map(([count, fault]) => `${count} × ${fault}`);
    return `${describeCell(cell, several)}: ${summary.completed} of ${summary.n} loaded${over} (${why.join(', ')})`;
  });
}

/** Returns the tables for a terminal. */
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

/** Returns the tables in Markdown. */
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

/** Aligns columns to equal widths, the first ones left-aligned, the others right-aligned. */
function aligned(
  columns: readonly string[],
  body: readonly (readonly string[])[],
  textColumns: number,
): string {
  const rows = [columns, ...body];
  const widths = columns.map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? '').length)),
  );
  const line = (row: readonly string[]): string =>
    row
      .map((text, at) =>
        at < textColumns ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0),
      )
      .join('  ')
      .trimEnd();
  return rows.map(line).join('\n');
}

function piped(
  columns: readonly string[],
  body: readonly (readonly string[])[],
  textColumns: number,
): string {
  const line = (row: readonly string[]): string =>
    `| ${row.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = columns.map((_, at) => (at < textColumns ? '---' : '---:'));
  return [columns, rule, ...body].map(line).join('\n');
}

/** Notes for which n a percentile is simply the maximum, which its digits do not show. */
function percentileNote(cells: readonly Cell[]): string[] {
  const counts = [...new Set(cells.map(({ summary }) => summary.n))]
    .filter((n) => n > 0)
    .sort((a, b) => a - b);
  if (counts.length === 0) return [];
  const words = (percent: number): string =>
    `p${percent} = ${[...new Set(counts.map((n) => describeRank(percent, n)))].join(', ')}`;
  const few =
    (counts[0] as number) < distinctFrom(99)
      ? `; p99 differs from the maximum only from n = ${distinctFrom(99)} on`
      : '';
  return [
    `Percentiles by nearest rank: ${words(90)}; ${words(99)}${few}.`,
    ...intervalNotes(cells),
  ];
}

function describeCell({ profile, page, arm }: Cell, several: boolean): string {
  return `${arm} on ${profile}${several ? `/${page}` : ''}`;
}

/** Lists the 95 % intervals of median, p90 and p99 of each cell with enough loads. */
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
    return [`${describeCell(cell, several)}, 95 %: ${intervals.join(', ')}.`];
  });
  if (lines.length === 0) return [];
  const few = cells.some(
    ({ summary }) => summary.n > 0 && quantileRanks(summary.n, 99).high === undefined,
  );
  const bound = few ? ` The true p99 has no finite upper bound until n = ${boundedFrom(99)}.` : '';
  return [`Intervals of percentiles are rank-based and assume no distribution.${bound}`, ...lines];
}

function figure(value: Figure | undefined): string {
  if (value === undefined) return '-';
  return value === 'censored' ? CENSORED : value.seconds.toFixed(4);
}
