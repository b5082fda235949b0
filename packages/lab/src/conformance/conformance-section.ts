import { coordinate, html, prose, type Html } from '../report/html.js';
import { scrollingTable, textRow } from '../report/scrolling-table.js';
import {
  pointsOf,
  type BulkProtocol,
  type Conformance,
  type Controller,
  type Transfer,
} from './conformance.js';
import { HEAD, NAMES, notesOf, rowsOf } from './conformance-text.js';

const COLOURS: Readonly<Record<BulkProtocol, string>> = { h2: 'var(--arm-0)', h3: 'var(--arm-1)' };
const WORDS: Readonly<Record<BulkProtocol, string>> = { h2: 'TCP (h2)', h3: 'QUIC (h3)' };

/**
 * Returns the conformance check as a report section: a table, and a scatter plot of the seconds for
 * each controller.
 */
export function conformanceSection(conformance: Conformance): Html {
  const { controllers } = conformance;
  const rows = rowsOf(controllers).map((row) => textRow(row, NAMES));
  return html`<section id="conformance">
    <h2>Congestion controllers over TCP and over QUIC</h2>
    <div class="grid">${controllers.map((controller) => scatterCard(controller, conformance))}</div>
    <div class="card" style="margin-top:16px">
      ${scrollingTable({ label: 'Table of congestion controllers', head: HEAD, names: NAMES, rows })}
      ${notesOf(conformance).map((note) => html`<p class="soft small">${prose(note)}</p>`)}
    </div>
  </section>`;
}

function scatterCard({ congestion, verdict }: Controller, conformance: Conformance): Html {
  const those = conformance.transfers.filter(
    (each) => each.valid && each.congestion === congestion,
  );
  return html`<article class="card">
    <header>
      <h3>${congestion}: ${verdict}</h3>
      <p class="legend">
        ${(['h2', 'h3'] as const).map(
          (each) => html`<span><i style="background:${COLOURS[each]}"></i>${WORDS[each]}</span>`,
        )}
      </p>
    </header>
    ${scatter(congestion, those, conformance.link)}
  </article>`;
}

const [WIDTH, HEIGHT] = [360, 240];
const EDGE = { left: 44, right: 12, top: 10, bottom: 34 };
const RADIUS = 4;

/** Draws a scatter plot. Each point is a second of a transfer: throughput and queue delay. */
function scatter(name: string, transfers: readonly Transfer[], link: Conformance['link']): Html {
  const x = (share: number): string =>
    coordinate(EDGE.left + clamped(share) * (WIDTH - EDGE.left - EDGE.right));
  const y = (share: number): string =>
    coordinate(HEIGHT - EDGE.bottom - clamped(share) * (HEIGHT - EDGE.top - EDGE.bottom));
  const halves = [0, 0.5, 1];
  const points = transfers.flatMap((transfer) =>
    pointsOf(transfer, link).map(({ throughput, delay }) =>
      // TCP is a disc and QUIC a ring, for readers who cannot distinguish the colours.
      transfer.protocol === 'h2'
        ? html`<circle
            cx="${x(throughput)}"
            cy="${y(delay)}"
            r="${RADIUS}"
            fill="${COLOURS.h2}"
            fill-opacity="0.6"
          />`
        : html`<circle
            cx="${x(throughput)}"
            cy="${y(delay)}"
            r="${RADIUS}"
            fill="none"
            stroke="${COLOURS.h3}"
            stroke-width="1.6"
          />`,
    ),
  );
  return html`<svg
    class="violin"
    viewBox="0 0 ${WIDTH} ${HEIGHT}"
    role="img"
    aria-label="${name}: throughput and queue delay of each second, over TCP and over QUIC"
  >
    ${halves.map(
      (half) =>
        html`<line class="rule" x1="${x(half)}" x2="${x(half)}" y1="${y(0)}" y2="${y(1)}" />
          <line class="rule" x1="${x(0)}" x2="${x(1)}" y1="${y(half)}" y2="${y(half)}" />
          <text x="${x(half)}" y="${HEIGHT - EDGE.bottom + 14}" text-anchor="middle"
            >${coordinate(half * link.rateMbit)}</text
          >
          <text x="${EDGE.left - 6}" y="${y(half)}" dy="4" text-anchor="end"
            >${coordinate(half * link.queueMs)}</text
          >`,
    )}
    <text x="${x(0.5)}" y="${HEIGHT - 4}" text-anchor="middle">throughput, Mbit/s</text>
    <text transform="translate(11 ${y(0.5)}) rotate(-90)" text-anchor="middle">
      queue delay, ms
    </text>
    ${points}
  </svg>`;
}

function clamped(share: number): number {
  return Math.min(1, Math.max(0, share));
}
