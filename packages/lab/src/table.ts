import type { Campaign } from './campaign-file.js';
import { blockInWords } from './progress.js';
import type { Cell, Results } from './results.js';
import { distinctFrom, rankInWords, type Figure } from './statistics.js';

export const COLUMNS = [
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
  const without = <T>(row: readonly T[]): T[] => row.filter((_, at) => at !== COLUMNS.indexOf('page'));
  return { head: without(COLUMNS), names: TEXT_COLUMNS - 1, rows: cells.map((cell) => without(rowOf(cell))) };
}

/** Whether pages have to be told apart. */
export function severalPages(cells: readonly Cell[]): boolean {
  return new Set(cells.map(({ page }) => page)).size > 1;
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
  const notes = [
    'Seconds from the start of navigation to the end of the load event. n counts valid loads; invalid ones are counted apart.',
    ...percentileNote(cells),
  ];
  if (cells.some(({ summary }) => summary.completed < summary.n)) {
    notes.push(
      `"${CENSORED}": the load at this rank did not complete (limit ${campaign.timeoutSeconds} s); ` +
        'such a load ranks as slower than all that did.',
      '*: mean of the completed loads only.',
    );
  }
  if (campaign.watched) {
    notes.push('Each load was watched, which slows it: these figures compare only with others that were taken so.');
  }
  if (campaign.status === 'interrupted')
    notes.push('The campaign was interrupted: the table shows the loads until then.');
  return notes;
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

/** The table for a terminal. */
export function textTable(campaign: Campaign, results: Results): string {
  const { head, names, rows: body } = tableOf(results.cells);
  const rows = [head, ...body];
  const widths = head.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((text, at) => (at < names ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0)))
      .join('  ')
      .trimEnd();
  const notes = [...tableNotes(campaign, results), ...troubleLines(results)];
  return `${rows.map(line).join('\n')}\n\n${notes.join('\n')}\n`;
}

/** The table in Markdown. */
export function markdownTable(campaign: Campaign, results: Results): string {
  const line = (row: readonly string[]): string => `| ${row.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const { head, names, rows: body } = tableOf(results.cells);
  const rule = head.map((_, at) => (at < names ? '---' : '---:'));
  const rows = [head, rule, ...body].map(line);
  const notes = [...tableNotes(campaign, results), ...troubleLines(results)].map(
    (note) => `- ${note.replaceAll('*', '\\*')}`,
  );
  return `${rows.join('\n')}\n\n${notes.join('\n')}\n`;
}

/** Says for which n a percentile is simply the largest value, which no digit of it shows. */
function percentileNote(cells: readonly Cell[]): string[] {
  const counts = [...new Set(cells.map(({ summary }) => summary.n))].filter((n) => n > 0).sort((a, b) => a - b);
  if (counts.length === 0) return [];
  const words = (percent: number): string =>
    `p${percent} = ${[...new Set(counts.map((n) => rankInWords(percent, n)))].join(', ')}`;
  const few =
    (counts[0] as number) < distinctFrom(99) ? `; p99 says more than the maximum from n = ${distinctFrom(99)} on` : '';
  return [`Percentiles by nearest rank: ${words(90)}; ${words(99)}${few}.`];
}

function figure(value: Figure | undefined): string {
  if (value === undefined) return '-';
  return value === 'censored' ? CENSORED : value.seconds.toFixed(4);
}
