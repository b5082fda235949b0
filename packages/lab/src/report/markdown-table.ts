/**
 * Returns a Markdown table whose columns also align in a terminal; the first `names` columns are
 * words.
 */
export function markdownTable(
  head: readonly string[],
  body: readonly (readonly string[])[],
  names: number,
): string {
  const rows = [head, ...body].map((row) => row.map((text) => text.replaceAll('|', '\\|')));
  const widths = head.map((_, at) => Math.max(3, ...rows.map((row) => row[at]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    `| ${row.map((text, at) => (at < names ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0))).join(' | ')} |`;
  const rule = `|${widths.map((width, at) => (at < names ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`;
  return [line(rows[0] as string[]), rule, ...rows.slice(1).map(line)].join('\n');
}
