import { html, type Html } from './html.js';

/** What a table is made of: `names` columns from the left are words, the others figures. */
export interface TableParts {
  /** For those who hear the page. */
  readonly label: string;
  readonly head: readonly string[];
  readonly names: number;
  readonly rows: readonly Html[];
}

/** A table that scrolls inside its box where it is too wide, and can be scrolled by keyboard. */
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

/** A row of plain text. */
export function textRow(row: readonly string[], names: number): Html {
  return html`<tr>
    ${row.map((value, at) => html`<td class="${at < names ? 'name' : ''}">${value}</td>`)}
  </tr>`;
}
