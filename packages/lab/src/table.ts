import type { Campaign } from './campaign-file.js';
import { blockInWords } from './progress.js';
import type { Cell, Results } from './results.js';
import { distinctFrom, rankInWords, type Figure } from './statistics.js';

const COLUMNS = ['profile', 'arm', 'median', 'mean', 'p90', 'p99', 'min', 'max', 'n', 'completed', 'invalid'] as const;
const TEXT_COLUMNS = 2;
/** Stands for a load that did not complete where a percentile falls on one. */
export const CENSORED = 'none';

/** The rows of the table: one per profile and arm, as text, with seconds to four decimals. */
export function tableRows(cells: readonly Cell[]): string[][] {
  return cells.map(({ profile, arm, summary, invalid }) => {
    const meanMark = summary.completed < summary.n ? '*' : '';
    return [
      profile,
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
  });
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
  if (campaign.netLog) {
    notes.push('Each load wrote a NetLog, which slows it: these figures compare only with others that were taken so.');
  }
  if (campaign.status === 'interrupted')
    notes.push('The campaign was interrupted: the table shows the loads until then.');
  return notes;
}

/** Each load that is not valid or did not complete, with its reasons. */
export function troubleLines(results: Results): string[] {
  return results.cells.flatMap(({ profile, arm, rehearsals, loads }) =>
    [...rehearsals, ...loads].flatMap(({ load, block, outcome, reason, valid, invalidReasons }) => {
      const where = `load ${load} (${profile}, ${blockInWords(block)}, ${arm})`;
      if (!valid) return [`${where} is invalid: ${invalidReasons.join('; ')}`];
      return outcome === 'completed' ? [] : [`${where} did not complete: ${outcome}: ${reason ?? ''}`];
    }),
  );
}

/** The table for a terminal. */
export function textTable(campaign: Campaign, results: Results): string {
  const rows = [[...COLUMNS], ...tableRows(results.cells)];
  const widths = COLUMNS.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((text, at) => (at < TEXT_COLUMNS ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0)))
      .join('  ')
      .trimEnd();
  const notes = [...tableNotes(campaign, results), ...troubleLines(results)];
  return `${rows.map(line).join('\n')}\n\n${notes.join('\n')}\n`;
}

/** The table in Markdown. */
export function markdownTable(campaign: Campaign, results: Results): string {
  const line = (row: readonly string[]): string => `| ${row.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = COLUMNS.map((_, at) => (at < TEXT_COLUMNS ? '---' : '---:'));
  const rows = [[...COLUMNS], rule, ...tableRows(results.cells)].map(line);
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
