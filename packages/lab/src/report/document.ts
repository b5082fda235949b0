import { createHash } from 'node:crypto';
import { isLive, type Campaign } from '../campaign/campaign-file.js';
import type { Results } from './results.js';
import { failureLines } from './results-table.js';
import { latePaintNotes } from './paint-notes.js';
import { comparisonsSection } from './comparisons.js';
import { filmstrips } from './filmstrip.js';
import { html, Html, prose } from './html.js';
import { HOL_STYLE } from './hol.js';
import type { PictureStore } from './pictures.js';
import { SCRIPT } from './script.js';
import {
  congestion,
  figures,
  links,
  method,
  profilePages,
  timelines,
  trouble,
  violins,
} from './sections.js';
import type { ShownPlace } from './shown-loads.js';
import { sideBySide, type Race } from './side-by-side.js';
import { describeSharing } from './results-table.js';
import { armColour, STYLE } from './style.js';
import { TIMELINE_STYLE, type ReportedLoad } from './timeline-picture.js';
import { headOfLine, whyTable } from './why.js';

/** The single loads and optional sections of a report. */
export interface ReportContents {
  readonly places: readonly ShownPlace[];
  readonly races: readonly Race[];
  /** The drawn loads, by number. */
  readonly loads: ReadonlyMap<number, ReportedLoad>;
  readonly pictures: PictureStore;
  /** Sections that not every campaign has, for the top and the end. */
  readonly verdict: Html | undefined;
  readonly bench: readonly (Html | undefined)[];
}

/** Content security policy: the report may only show its own content. */
const POLICY = [
  "default-src 'none'",
  'img-src data:',
  "style-src 'unsafe-inline'",
  `script-src 'sha256-${createHash('sha256').update(SCRIPT).digest('base64')}'`,
].join('; ');

/** Returns the whole report as one self-contained document. */
export function reportDocument(
  campaign: Campaign,
  results: Results,
  { places, races, loads, pictures, verdict, bench }: ReportContents,
): string {
  const colourOf = (arm: string): string => `var(--arm-${armColour(campaign, arm)})`;
  const document = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta http-equiv="Content-Security-Policy" content="${POLICY}" />
        <link rel="icon" href="data:," />
        <title>${campaign.name}: Pronghorn lab report</title>
        <style>
          ${new Html(STYLE + TIMELINE_STYLE + HOL_STYLE)}
        </style>
      </head>
      <body>
        ${pictures.symbols()}
        <main>
          ${heading(campaign, results)} ${verdict} ${violins(results, colourOf)}
          ${comparisonsSection(results.comparisons, colourOf, latePaintNotes(results))}
          ${figures(campaign, results, colourOf)} ${sideBySide(races, pictures, colourOf)}
          ${filmstrips(places, loads, colourOf)} ${whyTable(campaign, results, colourOf)}
          ${timelines(results, loads, colourOf)} ${headOfLine(watchedIn(results, loads))}
          ${congestion(campaign, results)} ${bench} ${links(results)} ${trouble(results)}
          ${method(campaign, results)}
          <footer>
            <p>
              Made from <code>samples.jsonl</code> and <code>campaign.json</code> beside this file,
              which contain each load with all its timings.
              <code>pronghorn-lab report</code> rebuilds it.
            </p>
          </footer>
        </main>
        ${new Html(`<script>${SCRIPT}</script>`)}
      </body>
    </html> `;
  return document.markup;
}

/** Returns the watched loads of each profile and page. */
function watchedIn(
  results: Results,
  loads: ReadonlyMap<number, ReportedLoad>,
): { place: string; watched: ReportedLoad[] }[] {
  return profilePages(results).map(({ place, cells }) => ({
    place,
    watched: cells.flatMap((cell) => cell.rehearsals.flatMap(({ load }) => loads.get(load) ?? [])),
  }));
}

function heading(campaign: Campaign, results: Results): Html {
  const loads = results.cells.flatMap((cell) => cell.loads);
  const valid = loads.filter((load) => load.valid);
  const completed = valid.filter((load) => load.time !== undefined).length;
  const invalid = loads.length - valid.length;
  const links = describeLinks(campaign);
  const blocks = Math.max(0, ...loads.map(({ block }) => block));
  return html`<header>
    <h1>${campaign.name}: ${listed(campaign.arms.map(({ name }) => name))} over ${links}</h1>
    <p class="soft">
      ${describePages(campaign.pages)}, loaded by Chromium ${campaign.environment.chromium},
      ${blocks} ${blocks === 1 ? 'block' : 'blocks'},
      ${campaign.sittings[0]?.startedAt.slice(0, 10)}.
    </p>
    <ul class="facts">
      <li><b>${loads.length}</b> loads</li>
      <li class="${invalid === 0 ? 'good' : ''}"><b>${valid.length}</b> valid</li>
      ${invalid === 0 ? undefined : html`<li class="bad"><b>${invalid}</b> invalid</li>`}
      <li class="${completed === valid.length ? 'good' : ''}">
        <b>${completed}</b> of ${valid.length} completed
      </li>
      <li>seed <b>${campaign.seed}</b></li>
    </ul>
    ${results.shared.beside === 0 ? undefined : html`<p class="notice">${prose(describeSharing(results.shared))}</p>`}
    ${failures(results)}
    ${campaign.status === 'finished' ? undefined : html`<p class="notice">This campaign did not finish: ${campaign.status}.</p>`}
  </header>`;
}

/**
 * Lists failures before all figures: those of an arm that never loaded the page are meaningless.
 */
function failures(results: Results): Html | undefined {
  const lines = failureLines(results);
  if (lines.length === 0) return undefined;
  const isDead = results.cells.some(({ summary }) => summary.n > 0 && summary.completed === 0);
  return html`<div class="${isDead ? 'notice' : 'soft'}">
    ${lines.map((line) => html`<p>${line}</p>`)}
  </div>`;
}

function describeLinks({ pages, profiles }: Campaign): string {
  if (isLive({ pages })) return "this machine's network";
  return profiles.length === 1 ? 'one emulated link' : `${profiles.length} emulated links`;
}

function describePages(pages: Campaign['pages']): string {
  const [first, ...others] = pages;
  if (first === undefined || others.length > 0) return `${pages.length} pages`;
  if (first.url !== undefined) return first.url;
  const size = first.bytes === undefined ? '' : ` and ${(first.bytes / 1000).toFixed(0)} KB`;
  return `A page of ${first.requests} requests${size}`;
}

function listed(names: readonly string[]): string {
  return names.length < 2
    ? names.join('')
    : `${names.slice(0, -1).join(', ')} and ${names.at(-1) ?? ''}`;
}
