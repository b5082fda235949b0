import { html, prose, type Html } from '../report/html.js';
import { scrollingTable, textRow } from '../report/scrolling-table.js';
import type { Verdict } from './criterion.js';
import {
  describeBench,
  describeClaim,
  describeEffect,
  describeExplanation,
  describeSummary,
} from './reproduction-text.js';
import {
  measuredCells,
  MEASURED_HEAD,
  measuredNotes,
  describeProgress,
  type ReproductionData,
} from './reproduction-text.js';

const CLASSES: Readonly<Record<Verdict, string>> = {
  reproduced: 'good',
  // A result that did not reproduce is not an error.
  'not reproduced': 'found',
  undecided: 'soft',
  reported: 'soft',
};

const CRITERIA_HEAD = [
  'criterion',
  'holds if',
  'published',
  'measured',
  'blocks',
  'verdict',
  'expected',
];

/** Returns the reproduction as a section of a campaign's report. */
export function reproductionSection(told: ReproductionData): Html {
  const { study, rows, criteria } = told.reproduction;
  const explained = criteria.filter(
    ({ verdict }) => verdict === 'not reproduced' || verdict === 'undecided',
  );
  const measured = rows.flatMap(measuredCells).map((row) => textRow(row, 4));
  const judged = criteria.map(
    (each) =>
      html`<tr>
        <td class="name" style="white-space:normal;min-width:18em">
          ${prose(each.criterion.statement)}
        </td>
        <td class="name">${describeClaim(each.criterion.claim)}</td>
        <td>${each.criterion.published?.toFixed(3)}</td>
        <td>${describeEffect(each)}</td>
        <td>${each.blocks}</td>
        <td class="${CLASSES[each.verdict]}">${each.verdict}</td>
        <td>${each.criterion.expected.verdict}</td>
      </tr>`,
  );
  return html`<section id="reproduction">
    <h2>Published and measured figures</h2>
    <div class="card">
      <p><b>${prose(describeSummary(told.reproduction))}</b></p>
      <p class="soft small">${prose(study.source)}</p>
      <p class="soft small">${prose(study.metric)}</p>
      <p class="soft small">${prose(describeProgress(told))}</p>
      ${scrollingTable({ label: 'Published and measured', head: MEASURED_HEAD, names: 4, rows: measured })}
      ${measuredNotes(told.reproduction).map((note) => html`<p class="soft small">${prose(note)}</p>`)}
    </div>
    <h3 class="profile">Criteria, written before the run</h3>
    <div class="card">
      ${scrollingTable({ label: 'Criteria', head: CRITERIA_HEAD, names: 2, rows: judged })}
      ${told.criteria.rules.map((rule) => html`<p class="soft small">${prose(rule)}</p>`)}
    </div>
    ${
      explained.length === 0
        ? undefined
        : html`<h3 class="profile">What did not reproduce or remains undecided</h3>
            <div class="card">
              <ul>
                ${explained.map((each) => html`<li>${each.verdict}: ${prose(describeExplanation(each))}</li>`)}
              </ul>
            </div>`
    }
    <h3 class="profile">Differences from the published setting</h3>
    <div class="card">
      <ul>
        ${study.differences.map((each) => html`<li>${prose(each)}</li>`)}
      </ul>
      <p class="soft small">${prose(describeBench(told.reproduction))}</p>
    </div>
  </section>`;
}
