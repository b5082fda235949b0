import type { CampaignComparisons } from '../compare/compare-campaign.js';
import { comparisonColumns, comparisonRows } from '../compare/comparison-table.js';
import { comparisonNotes, describeDisagreement } from '../compare/comparison-text.js';
import { forest } from './forest.js';
import { html, prose, type Html } from './html.js';
import { scrollingTable } from './scrolling-table.js';

/**
 * Shows how the arms compare: the ratios of medians as a figure, then all comparisons as a table,
 * then the notes, with further ones if given.
 */
export function comparisonsSection(
  campaign: CampaignComparisons,
  colourOf: (arm: string) => string,
  more: readonly string[] = [],
): Html | undefined {
  const { comparisons, control } = campaign;
  if (comparisons.length === 0) return undefined;
  const loads = comparisons.filter(({ metric }) => metric === 'load');
  const columns = comparisonColumns(comparisons);
  const verdictAt = columns.length - 1;
  const rows = comparisonRows(comparisons, false).flatMap((row, at) => {
    const one = comparisons[at];
    const found = one?.verdict.kind === 'faster' || one?.verdict.kind === 'slower';
    const explanation = one && describeDisagreement(one);
    const cells = row.map(
      (text, column) =>
        html`<td class="name ${column === verdictAt && found ? 'found' : ''}">${text}</td>`,
    );
    if (explanation === undefined)
      return [
        html`<tr>
          ${cells}
        </tr>`,
      ];
    return [
      html`<tr class="explained">
        ${cells}
      </tr>`,
      html`<tr>
        <td class="name" colspan="${columns.length}">
          <div class="explanation">${explanation}</div>
        </td>
      </tr>`,
    ];
  });
  return html`<section>
    <h2>Comparisons</h2>
    ${control.verdict === 'repair-the-bench' ? html`<p class="notice">${comparisonNotes(campaign).at(-1)}</p>` : undefined}
    <div class="card">
      <p class="soft small">
        Median load time divided by that of the other arm, with its 95 % interval.
      </p>
      ${forest(loads, colourOf)}
    </div>
    <div class="card comparisons">
      ${scrollingTable({ label: 'Table of comparisons', head: columns, names: columns.length, rows })}
      ${[...comparisonNotes(campaign), ...more].map((note) => html`<p class="soft small">${prose(note)}</p>`)}
    </div>
  </section>`;
}
