import { severalPages, type Cell, type Results } from '../results.js';
import { LABEL_KINDS } from '../trace/label.js';
import { html, type Html } from './html.js';
import { worstStall, headOfLinePicture } from './hol.js';
import { scrollingTable } from './scrolling-table.js';
import type { ReportedLoad } from './timeline.js';
import { LABEL_NAMES } from './timeline.js';

/** How many loads of each arm have which label, and what it cost them. */
export function whyTable({ cells }: Results, colourOf: (arm: string) => string): Html | undefined {
  const several = severalPages(cells);
  const rows = cells.flatMap((cell) => rowsOf(cell, several, colourOf));
  if (rows.length === 0) return undefined;
  const head = ['profile', ...(several ? ['page'] : []), 'arm', 'what', 'loads', 'median cost', 'most'];
  const names = several ? 4 : 3;
  return html`<section>
    <h2>Why the loads took their time</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of labels', head, names, rows })}
      <p class="soft small">
        Found by rules in the packets at the link, the kernel's word of its TCP connections and the browser's timings of
        each valid load; the README says which rules. The cost is the time that all findings of a kind in one load add
        up to, over the loads that have any; findings may overlap.
      </p>
    </div>
  </section>`;
}

function rowsOf(
  { profile, page, arm, summary, labels }: Cell,
  several: boolean,
  colourOf: (arm: string) => string,
): Html[] {
  const found = LABEL_KINDS.flatMap((kind) => {
    const label = labels.get(kind);
    return label === undefined ? [] : [{ kind, ...label }];
  });
  return found.map(({ kind, loads, medianSeconds, mostSeconds }, index) => {
    const first = index === 0;
    return html`<tr class="${first ? 'first' : ''}">
      <td class="name profile">${first ? profile : ''}</td>
      ${several ? html`<td class="name">${first ? page : ''}</td>` : undefined}
      <td class="name">${first ? html`<span class="swatch" style="--arm:${colourOf(arm)}"></span>${arm}` : ''}</td>
      <td class="name">${LABEL_NAMES[kind]}</td>
      <td>${loads} of ${summary.n}</td>
      <td>${seconds(medianSeconds)}</td>
      <td>${seconds(mostSeconds)}</td>
    </tr>`;
  });
}

function seconds(value: number): string {
  return value === 0 ? '–' : `${(value * 1000).toFixed(0)} ms`;
}

/** The head-of-line picture of each place: the worst stall of either protocol in its watched loads. */
export function headOfLine(
  places: readonly { readonly place: string; readonly watched: readonly ReportedLoad[] }[],
): Html | undefined {
  const pictures = places.flatMap(({ place, watched }) => {
    const timelines = watched.flatMap(({ timeline }) => timeline ?? []);
    const stalls = (['h2', 'h3'] as const).flatMap((protocol) => worstStall(timelines, protocol) ?? []);
    return stalls.length === 0
      ? []
      : [
          html`<h3 class="profile">${place}</h3>
            <div class="hol">${headOfLinePicture(stalls)}</div>`,
        ];
  });
  if (pictures.length === 0) return undefined;
  return html`<section>
    <h2>A lost packet, and who waits for it</h2>
    <p class="soft small">
      From the rehearsal, whose loads write a NetLog: the stall in which the most streams waited the longest, of either
      protocol. A rehearsal counts for no figure.
    </p>
    ${pictures}
  </section>`;
}
