import { html, type Html } from './html.js';

/** The parts of a table: the first `names` columns are words, the others figures. */
export interface TableParts {
  /** Label for screen readers. */
  readonly label: string;
  readonly head: readonly string[];
  readonly names: number;
  readonly rows: readonly Html[];
}

/** Returns a table that scrolls in its box if it is too wide, also by keyboard. */
export function scrollingTable({ label, head, names, rows }: TableParts): Html {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${label}">
    <table>
      <thead>
        <tr>
          ${head.map((title, at) => html`<th class="${at < names ? 'name' : ''}" scope="col">${title}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

/** Returns a row of plain text. */
export function textRow(row: readonly string[], names: number): Html {
  return html`<tr>
    ${row.map((value, at) => html`<td class="${at < names ? 'name' : ''}">${value}</td>`)}
  </tr>`;
}
