import { html, type Html } from './html.js';
import type { Pictures } from './pictures.js';
import { describeChoice, type ShownLoad, type ShownPlace, type Waterfalls } from './shown-loads.js';
import type { WaterfallLoad } from './waterfall.js';

/** Time between pictures in seconds; the smallest that gives few enough pictures is used. */
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60];
const MAX_STEPS = 16;

/**
 * Returns a row of pictures of each arm at the same times, for each profile and page that has
 * pictures.
 */
export function filmstrips(
  places: readonly ShownPlace[],
  waterfalls: Waterfalls,
  colourOf: (arm: string) => string,
): Html | undefined {
  const strips = places.flatMap(({ place, loads }) => {
    const pictured = loads.filter(({ pictures }) => pictures !== undefined);
    return pictured.length === 0 ? [] : [filmstrip(place.place, pictured, waterfalls, colourOf)];
  });
  if (strips.length === 0) return undefined;
  return html`<section>
    <h2>Filmstrip</h2>
    ${strips}
    <p class="soft small">
      Each picture shows the screen at its time. A bold time marks the first picture at or after a
      first contentful paint (FCP), a largest contentful paint (LCP) or a load event.
    </p>
  </section>`;
}

/** Returns the time between two pictures in a strip of so many seconds. */
export function stepOf(seconds: number): number {
  return (
    STEPS.find((step) => Math.ceil(seconds / step) + 1 <= MAX_STEPS) ??
    Math.ceil(seconds / (MAX_STEPS - 1))
  );
}

function filmstrip(
  title: string,
  loads: readonly ShownLoad[],
  waterfalls: Waterfalls,
  colourOf: (arm: string) => string,
): Html {
  const last = Math.max(
    ...loads.flatMap(({ time, pictures }) => [time ?? 0, pictures?.frames.at(-1)?.seconds ?? 0]),
  );
  const step = stepOf(last);
  const times = Array.from({ length: Math.ceil(last / step) + 1 }, (_, index) =>
    Number((index * step).toFixed(3)),
  );
  const rows = loads.map(
    (load) =>
      html`<p class="small">
          <span class="swatch" style="--arm:${colourOf(load.arm)}"></span><b>${load.arm}</b>
          <span class="soft"
            >${describeChoice(load)}${load.time === undefined ? ', did not complete' : `: ${load.time.toFixed(2)} s`}</span
          >
        </p>
        <ol class="strip">
          ${load.pictures && pictureRow(load.pictures, times, marksOf(load, waterfalls.get(load.load)))}
        </ol>`,
  );
  return html`<article class="card film">
    <header><h3>${title}</h3></header>
    <div class="scroll" tabindex="0" role="region" aria-label="Filmstrip, ${title}">${rows}</div>
  </article>`;
}

/** Returns events with their times in seconds. */
function marksOf({ time }: ShownLoad, load: WaterfallLoad | undefined): [string, number][] {
  const marks: [string, number | undefined][] = [
    ['FCP', seconds(load?.browser.firstContentfulPaintMs)],
    ['LCP', seconds(load?.browser.largestContentfulPaintMs)],
    ['load', time],
  ];
  return marks.flatMap(([name, at]) => (at === undefined ? [] : [[name, at]]));
}

function seconds(milliseconds: number | undefined): number | undefined {
  return milliseconds === undefined ? undefined : milliseconds / 1000;
}

function pictureRow(
  { width, height, frames }: Pictures,
  times: readonly number[],
  marks: [string, number][],
): Html[] {
  return times.map((time, index) => {
    const shown = frames.findLast(({ seconds: from }) => from <= time);
    const before = times[index - 1] ?? -1;
    const marked = marks.filter(([, at]) => at > before && at <= time).map(([name]) => name);
    const words = `${time} s: ${shown === undefined ? 'nothing yet' : 'page'}${marked.length > 0 ? `, ${marked.join(', ')}` : ''}`;
    return html`<li class="${marked.length > 0 ? 'marked' : ''}">
      <svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${words}">
        ${shown && html`<use href="#${shown.id}" />`}
      </svg>
      <span>${time} s${marked.length > 0 ? html`<b>${marked.join(', ')}</b>` : undefined}</span>
    </li>`;
  });
}
