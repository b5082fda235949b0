import { html, prose, type Html } from '../report/html.js';
import { scrollingTable, textRow } from '../report/scrolling-table.js';
import type { Verdict } from './criterion.js';
import { benchInWords, claimInWords, effectInWords, explanationInWords, summaryInWords } from './text.js';
import { measuredCells, MEASURED_HEAD, measuredNotes, standingInWords, type Told } from './text.js';

const CLASSES: Readonly<Record<Verdict, string>> = {
  reproduced: 'good',
  // It is no fault that something did not reproduce.
  'not reproduced': 'found',
  undecided: 'soft',
  reported: 'soft',
};

const CRITERIA_HEAD = ['criterion', 'holds if', 'published', 'measured', 'blocks', 'verdict', 'expected'];

/** The reproduction as a section of a campaign's report. */
export function reproductionSection(told: Told): Html {
  const { study, rows, criteria } = told.reproduction;
  const explained = criteria.filter(({ verdict }) => verdict === 'not reproduced' || verdict === 'undecided');
  const measured = rows.flatMap(measuredCells).map((row) => textRow(row, 4));
  const judged = criteria.map(
    (each) =>
      html`<tr>
        <td class="name" style="white-space:normal;min-width:18em">${prose(each.criterion.statement)}</td>
        <td class="name">${claimInWords(each.criterion.claim)}</td>
        <td>${each.criterion.published?.toFixed(3)}</td>
        <td>${effectInWords(each)}</td>
        <td>${each.blocks}</td>
        <td class="${CLASSES[each.verdict]}">${each.verdict}</td>
        <td>${each.criterion.expected.verdict}</td>
      </tr>`,
  );
  return html`<section id="reproduction">
    <h2>Published beside measured</h2>
    <div class="card">
      <p><b>${prose(summaryInWords(told.reproduction))}</b></p>
      <p class="soft small">${prose(study.source)}</p>
      <p class="soft small">${prose(study.metric)}</p>
      <p class="soft small">${prose(standingInWords(told))}</p>
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
        : html`<h3 class="profile">What did not reproduce or stays undecided, and why it may</h3>
            <div class="card">
              <ul>
                ${explained.map((each) => html`<li>${each.verdict}: ${prose(explanationInWords(each))}</li>`)}
              </ul>
            </div>`
    }
    <h3 class="profile">In what this setting is another one</h3>
    <div class="card">
      <ul>
        ${study.differences.map((each) => html`<li>${prose(each)}</li>`)}
      </ul>
      <p class="soft small">${prose(benchInWords(told.reproduction))}</p>
    </div>
  </section>`;
}
