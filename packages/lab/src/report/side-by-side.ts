import type { Html } from './html.js';
import { coordinate as at, html } from './html.js';
import type { PictureStore, Pictures } from './pictures.js';
import { describeChoice, type ShownLoad, type ShownPlace, type Waterfalls } from './shown-loads.js';
import { barsOf, PHASES, type Bars, type WaterfallLoad } from './waterfall.js';

/** Height of a request's bar and of its row, in the drawing's units. */
const BAR = { height: 6, room: 8 };
/** Width of the drawing in its own units; it is stretched to the available width. */
const WIDTH = 1000;

/** A load in a race: its visible events on the race's common clock. */
export interface Lane {
  readonly shown: ShownLoad;
  readonly bars: Bars;
  /** When its clock stops, in seconds. */
  readonly end: number;
  readonly completed: boolean;
  /** When each response was complete, in seconds, in order of time. */
  readonly answers: readonly number[];
}

/** The loads of one profile and page side by side. */
export interface Race {
  readonly title: string;
  readonly lanes: readonly Lane[];
  /** When the last clock stops, in seconds, rounded up to a step of the slider. */
  readonly seconds: number;
  readonly step: number;
}

/** Returns the races of a report: one for each profile and page with loads of at least two arms. */
export function racesOf(places: readonly ShownPlace[], waterfalls: Waterfalls): Race[] {
  return places.flatMap(({ place, loads }) => {
    const lanes = loads.flatMap((shown) => {
      const load = waterfalls.get(shown.load);
      return load === undefined ? [] : [laneOf(shown, load)];
    });
    if (lanes.length < 2) return [];
    const longest = Math.max(...lanes.map(({ end }) => end));
    const step = stepOf(longest);
    return [
      {
        title: place.place,
        lanes,
        seconds: Number((Math.ceil(longest / step) * step).toFixed(3)),
        step,
      },
    ];
  });
}

/** Returns a round step length for about a hundred steps. */
function stepOf(seconds: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(seconds, 0.01) / 100));
  const round = [1, 2, 5, 10].find((each) => each * power >= seconds / 100) ?? 10;
  return Number((round * power).toPrecision(2));
}

function laneOf(shown: ShownLoad, load: WaterfallLoad): Lane {
  const bars = barsOf(load);
  const answers = [...bars.answers].map((ms) => ms / 1000).sort((a, b) => a - b);
  const last = Math.max(answers.at(-1) ?? 0, shown.pictures?.frames.at(-1)?.seconds ?? 0);
  return {
    shown,
    bars,
    end: shown.time ?? last,
    completed: shown.time !== undefined,
    answers,
  };
}

/** Returns all races as a section; without a script each shows its final state. */
export function sideBySide(
  races: readonly Race[],
  store: PictureStore,
  colourOf: (arm: string) => string,
): Html | undefined {
  if (races.length === 0) return undefined;
  return html`<section>
    <h2>Side by side, in real time</h2>
    ${races.map((race, number) => raceFigure(race, number, colourOf))}
    <p class="soft small">
      A bar is a request; it grows while its response arrives. A clock stops at the load event. All
      clocks of a picture run in real time.
      ${races.some(hasPictures) ? 'Loads with pictures were watched, which slows them: the figures are those of other loads, unless all were watched.' : undefined}
      ${store.leftOut > 0 ? `The pictures of ${store.leftOut} more loads exceed the size limit.` : undefined}
    </p>
  </section>`;
}

function hasPictures({ lanes }: Race): boolean {
  return lanes.some(({ shown }) => shown.pictures !== undefined);
}

function raceFigure(race: Race, number: number, colourOf: (arm: string) => string): Html {
  const { title, lanes, seconds, step } = race;
  const id = `race-${number}`;
  return html`<figure
    class="card race"
    data-seconds="${seconds}"
    role="group"
    aria-labelledby="${id}"
  >
    <figcaption id="${id}">${title}</figcaption>
    <div class="controls" hidden>
      <button type="button" aria-describedby="${id}">Play</button>
      <button type="button" aria-describedby="${id}">Restart</button>
      <input
        type="range"
        min="0"
        max="${seconds}"
        step="${step}"
        value="${seconds}"
        aria-label="Time since the start, ${title}"
        aria-valuetext="${seconds.toFixed(2)} seconds"
      />
    </div>
    <div class="lanes">
      ${lanes.map((lane) => laneMarkup(lane, race, colourOf(lane.shown.arm)))}
    </div>
  </figure>`;
}

function laneMarkup(lane: Lane, { seconds }: Race, colour: string): Html {
  const { shown, end, completed, answers } = lane;
  return html`<div
    class="lane"
    data-end="${end}"
    data-answers="${answers.map((time) => time.toFixed(3)).join(' ')}"
  >
    <p class="name"><span class="swatch" style="--arm:${colour}"></span><b>${shown.arm}</b></p>
    <p class="clock">${end.toFixed(2)} s</p>
    <p class="soft small">
      ${completed ? '' : 'did not complete; '}<span class="count">${answers.length}</span> of
      ${lane.bars.rows.length} responses, ${describeChoice(shown)}
    </p>
    ${shown.pictures && screen(shown.pictures, shown.arm)} ${barDrawing(lane, seconds)}
  </div>`;
}

function screen({ width, height, frames }: Pictures, arm: string): Html {
  const last = frames.length - 1;
  return html`<svg
    class="screen"
    viewBox="0 0 ${width} ${height}"
    role="img"
    aria-label="The page over ${arm}"
  >
    ${frames.map(
      ({ id, seconds }, index) =>
        html`<use
          href="#${id}"
          data-at="${seconds.toFixed(3)}"
          ${index === last ? undefined : HIDDEN}
        />`,
    )}
  </svg>`;
}

const HIDDEN = html` style="visibility:hidden"`;

/** Draws one path per phase, however many requests there are. */
function barDrawing({ bars, shown, end }: Lane, seconds: number): Html {
  const height = Math.max(1, bars.rows.length) * BAR.room;
  const label = `${bars.rows.length} requests over ${shown.arm}; the load took ${end.toFixed(2)} s`;
  return html`<svg
    class="requests"
    viewBox="0 0 ${WIDTH} ${height}"
    preserveAspectRatio="none"
    style="height:${Math.min(220, height)}px"
    role="img"
    aria-label="${label}"
  >
    <g class="bars">
      <rect width="${WIDTH}" height="${height}" fill="none" />
      ${phasePaths(bars, WIDTH / seconds)}
    </g>
  </svg>`;
}

/** Draws the bars of all requests, `scale` units per second, each in its row. */
export function phasePaths(bars: Bars, scale: number): Html[] {
  return PHASES.map((phase) => {
    const outlines = bars.rows.flatMap((spans, row) =>
      spans
        .filter((span) => span.phase === phase)
        .map(({ from, to }) => {
          const width = Math.max(1, ((to - from) / 1000) * scale);
          return `M${at((from / 1000) * scale)} ${row * BAR.room}h${at(width)}v${BAR.height}h${at(-width)}z`;
        }),
    );
    return html`<path class="${phase}" d="${outlines.join('')}" />`;
  });
}

/** Returns the height of the bars of all requests. */
export function barsHeight(bars: Bars): number {
  return Math.max(1, bars.rows.length) * BAR.room;
}
