import { isLive, type Campaign } from '../campaign/campaign-file.js';
import { severalPages, type Cell, type LabelShare, type Results } from './results.js';
import { LABEL_KINDS, type LabelKind } from '../trace/label.js';
import { unobservable, type Unobservable } from '../trace/observability.js';
import { html, type Html } from './html.js';
import { worstStall, headOfLinePicture } from './hol.js';
import { scrollingTable } from './scrolling-table.js';
import type { ReportedLoad } from './timeline-picture.js';
import { LABEL_NAMES } from './timeline-picture.js';

/**
 * Counts the loads of each arm with each label and what it cost them, and lists what was not looked
 * for.
 */
export function whyTable(
  campaign: Campaign,
  { cells }: Results,
  colourOf: (arm: string) => string,
): Html | undefined {
  const several = severalPages(cells);
  const entries = cells.map((cell) => ({
    cell,
    found: rowsOf(cell, campaign, kindsBeside(cell, cells)),
  }));
  const rows = entries.flatMap(({ cell, found }) => markupOf(cell, found, several, colourOf));
  if (rows.length === 0) return undefined;
  const head = [
    'profile',
    ...(several ? ['page'] : []),
    'arm',
    'what',
    'loads',
    'median cost',
    'most',
  ];
  const names = several ? 4 : 3;
  const blind = entries.some(({ found }) => found.some(({ spot }) => spot !== undefined));
  return html`<section id="why">
    <h2>Why the loads took their time</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of labels', head, names, rows })}
      <p class="soft small">
        Found by rules in the packets at the link, the kernel's TCP_INFO and the browser's timings
        of each valid load; the README lists the rules. The cost is the total time of all findings
        of a kind in one load, over the loads that have any; findings may overlap. A kind that has a
        row for one arm only was looked for in the other arms too and not found.
      </p>
      ${blind ? html`<p class="soft small">${describeBlindSpots(campaign)}</p>` : undefined}
    </div>
  </section>`;
}

/** A kind of finding in the loads of a cell: what was found, or that it could not be observed. */
interface Row {
  readonly kind: LabelKind;
  readonly share: LabelShare | undefined;
  readonly spot: Unobservable | undefined;
}

/**
 * Returns what was found in a cell, and what could not be observed there if another arm beside it
 * has it, or if it is head-of-line waiting.
 */
function rowsOf(
  { arm, looked, summary, labels }: Cell,
  campaign: Campaign,
  beside: ReadonlySet<LabelKind>,
): Row[] {
  const protocol = campaign.arms.find(({ name }) => name === arm)?.protocol;
  if (protocol === undefined || summary.n === 0) return [];
  const sources = {
    protocol,
    hasPackets: looked > 0 && !isLive(campaign),
    hasNetLog: looked > 0 && campaign.watched,
  };
  return LABEL_KINDS.flatMap((kind) => {
    const share = labels.get(kind);
    const spot = unobservable(kind, sources);
    const isTold = spot !== undefined && (kind === 'hol-stall' || beside.has(kind));
    return share !== undefined || isTold ? [{ kind, share, spot }] : [];
  });
}

/** Returns the kinds that any arm has on the profile and page of a cell. */
function kindsBeside({ profile, page }: Cell, cells: readonly Cell[]): Set<LabelKind> {
  const there = cells.filter((cell) => cell.profile === profile && cell.page === page);
  return new Set(there.flatMap(({ labels }) => [...labels.keys()]));
}

function describeBlindSpots(campaign: Campaign): string {
  if (isLive(campaign))
    return '"not looked for": the packets of a page that is loaded from its own server are not recorded.';
  return (
    '"not looked for": QUIC packets are encrypted, so waiting behind a lost packet over HTTP/3 is visible only in a NetLog ' +
    '(--watch-all writes one for each load), and its time-outs are not visible at all. They may have occurred.'
  );
}

function markupOf(
  { profile, page, arm, looked }: Cell,
  rows: readonly Row[],
  several: boolean,
  colourOf: (arm: string) => string,
): Html[] {
  return rows.map(({ kind, share, spot }, index) => {
    const first = index === 0;
    const of = spot === 'over TCP only' ? html` <span class="soft">${spot}</span>` : undefined;
    const none =
      spot === 'not looked for' ? html`<span class="soft">${spot}</span>` : `0 of ${looked}`;
    return html`<tr class="${first ? 'first' : ''}">
      <td class="name profile">${first ? profile : ''}</td>
      ${several ? html`<td class="name">${first ? page : ''}</td>` : undefined}
      <td class="name">
        ${first ? html`<span class="swatch" style="--arm:${colourOf(arm)}"></span>${arm}` : ''}
      </td>
      <td class="name">${LABEL_NAMES[kind]}${of}</td>
      <td>${share === undefined ? none : `${share.loads} of ${looked}`}</td>
      <td>${seconds(share?.medianSeconds ?? 0)}</td>
      <td>${seconds(share?.mostSeconds ?? 0)}</td>
    </tr>`;
  });
}

function seconds(value: number): string {
  return value === 0 ? '–' : `${(value * 1000).toFixed(0)} ms`;
}

/**
 * Returns the head-of-line picture of each profile and page: the worst stall of either protocol in
 * its watched loads.
 */
export function headOfLine(
  places: readonly { readonly place: string; readonly watched: readonly ReportedLoad[] }[],
): Html | undefined {
  const pictures = places.flatMap(({ place, watched }) => {
    const timelines = watched.flatMap(({ timeline }) => timeline ?? []);
    const stalls = (['h2', 'h3'] as const).flatMap(
      (protocol) => worstStall(timelines, protocol) ?? [],
    );
    return stalls.length === 0
      ? []
      : [
          html`<h3 class="profile">${place}</h3>
            <div class="hol">${headOfLinePicture(stalls)}</div>`,
        ];
  });
  if (pictures.length === 0) return undefined;
  return html`<section>
    <h2>A lost packet and the streams that wait for it</h2>
    <p class="soft small">
      From the rehearsal, whose loads write a NetLog: for either protocol the stall in which the
      most streams waited the longest. A rehearsal does not count for any figure.
    </p>
    ${pictures}
  </section>`;
}
