import type { Campaign } from '../campaign/campaign-file.js';
import { coordinate as at, html, Html } from './html.js';
import type { PictureStore, Pictures } from './pictures.js';
import { describeChoice } from './shown-loads.js';
import { barsHeight, phasePaths, type Lane, type Race } from './side-by-side.js';
import { ARM_COLOURS, armColour, COLOURS } from './style.js';

const LANE = { width: 300, gap: 20, head: 44 };
const MARGIN = 20;
const TITLE = 34;
/**
 * Maximum height of a lane's bars: dozens of requests stay distinguishable, and hundreds keep the
 * drawing small.
 */
const MAX_BARS = 180;
/** How long the final state is shown before the animation restarts, in seconds. */
const HOLD = 3;
/** Interval between clock updates in seconds, and the maximum number of figures of a clock. */
const TICK = 0.1;
const MAX_TICKS = 120;

/**
 * Draws a race as one animated picture, for media that show only pictures: it runs in real time,
 * pauses at its end and restarts.
 *
 * It is animated by CSS, so it needs no script, and it shows its final state if the reader prefers
 * reduced motion.
 */
export function animatedSvg(race: Race, campaign: Campaign, store: PictureStore): string {
  const { title, lanes, seconds } = race;
  const width = 2 * MARGIN + lanes.length * LANE.width + (lanes.length - 1) * LANE.gap;
  const screens = Math.max(
    0,
    ...lanes.map(({ shown }) => (shown.pictures ? screenHeight(shown.pictures) + 8 : 0)),
  );
  const bars = Math.max(...lanes.map((lane) => Math.min(MAX_BARS, barsHeight(lane.bars))));
  const height = MARGIN + TITLE + LANE.head + screens + bars + MARGIN;
  const total = seconds + HOLD;
  const drawn = lanes.map((lane, index) => {
    const left = MARGIN + index * (LANE.width + LANE.gap);
    return html`<g transform="translate(${left} ${MARGIN + TITLE})">
      <rect
        class="arm-${armColour(campaign, lane.shown.arm)}"
        y="2"
        width="11"
        height="11"
        rx="3"
      />
      <text class="name" x="18" y="13">${lane.shown.arm}</text>
      ${clock(lane, total)}
      <text class="soft" y="32"
        >${lane.completed ? '' : 'did not complete; '}${lane.bars.rows.length} requests,
        ${describeChoice(lane.shown)}</text
      >
      <g transform="translate(0 ${LANE.head})">${screen(lane, store, total)}</g>
      <g transform="translate(0 ${LANE.head + screens})">${growingBars(lane, race, bars)}</g>
    </g>`;
  });
  return html`<svg
    xmlns="http://www.w3.org/2000/svg"
    viewBox="0 0 ${width} ${height}"
    width="${width}"
    role="img"
  >
    <title>
      ${title}: ${lanes.map((lane) => `${lane.shown.arm} ${describeEnd(lane)}`).join(', ')}
    </title>
    <style>
      ${new Html(styleOf(race, total))}
    </style>
    <rect class="page" width="${width}" height="${height}" />
    <text class="title" x="${MARGIN}" y="${MARGIN + 14}">${title}</text>
    ${drawn}
  </svg> `.markup;
}

function describeEnd({ end, completed }: Lane): string {
  return completed ? `${end.toFixed(2)} s` : 'did not complete';
}

/** Returns the percentage of the whole animation at which a time is reached. */
function percent(seconds: number, total: number): string {
  return `${at((100 * seconds) / total)}%`;
}

function styleOf({ seconds }: Race, total: number): string {
  return `
svg { font: 14px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; ${COLOURS.light} }
@media (prefers-color-scheme: dark) { svg { ${COLOURS.dark} } }
.page { fill: var(--card); }
text { fill: var(--text); font-variant-numeric: tabular-nums; }
.title, .name, .clock { font-weight: 600; }
.title { font-size: 16px; }
.soft { fill: var(--soft); font-size: 12px; }
.track { fill: var(--page); }
.screen { fill: #fff; stroke: var(--edge); }
.blocked { fill: var(--blocked); } .connect { fill: var(--connect); } .wait { fill: var(--wait); } .receive { fill: var(--receive); }
${Array.from({ length: ARM_COLOURS }, (_, arm) => `.arm-${arm} { fill: var(--arm-${arm}); }`).join(' ')}
.cover { fill: var(--card); transform: translateX(${LANE.width}px); animation: grow ${at(total)}s linear infinite; }
@keyframes grow { 0% { transform: translateX(0); } ${percent(seconds, total)}, 100% { transform: translateX(${LANE.width}px); } }
.moment { visibility: hidden; animation-duration: ${at(total)}s; animation-timing-function: step-end; animation-iteration-count: infinite; }
.moment.last { visibility: visible; }
@media (prefers-reduced-motion: reduce) { .cover, .moment { animation: none; } }
`;
}

/** Shows something from one time of the race to another, or until the end if it is the last. */
function moment(
  name: string,
  from: number,
  to: number | undefined,
  total: number,
  content: Html,
): Html {
  const before = from > 0 ? '0%{visibility:hidden}' : '';
  const after =
    to === undefined ? '100%{visibility:visible}' : `${percent(to, total)},100%{visibility:hidden}`;
  const rule = `@keyframes ${name}{${before}${percent(from, total)}{visibility:visible}${after}}`;
  return html`<style>
      ${new Html(rule)}
    </style>
    <g class="moment ${to === undefined ? 'last' : ''}" style="animation-name:${name}"
      >${content}</g
    >`;
}

/** Draws successive figures; the last one is the exact end. */
function clock(lane: Lane, total: number): Html[] {
  const { end, shown } = lane;
  const tick = Math.max(TICK, Math.ceil(end / MAX_TICKS / TICK) * TICK);
  const times = Array.from({ length: Math.ceil(end / tick) }, (_, index) => index * tick);
  const figure = (text: string): Html =>
    html`<text class="clock" x="${LANE.width}" y="13" text-anchor="end">${text}</text>`;
  const running = times.map((time, index) =>
    moment(
      `clock-${shown.load}-${index}`,
      time,
      Math.min(end, times[index + 1] ?? end),
      total,
      figure(`${time.toFixed(1)} s`),
    ),
  );
  return [
    ...running,
    moment(`clock-${shown.load}-end`, end, undefined, total, figure(describeEnd(lane))),
  ];
}

function screen({ shown }: Lane, store: PictureStore, total: number): Html | undefined {
  const { pictures, load } = shown;
  if (pictures === undefined) return undefined;
  const height = screenHeight(pictures);
  const frames = pictures.frames.map(({ id, seconds }, index) => {
    const picture = html`<image
      href="${store.dataUrl(id)}"
      width="${LANE.width}"
      height="${height}"
    />`;
    return moment(
      `screen-${load}-${index}`,
      seconds,
      pictures.frames[index + 1]?.seconds,
      total,
      picture,
    );
  });
  return html`<rect class="screen" width="${LANE.width}" height="${height}" />${frames}`;
}

function screenHeight({ width, height }: Pictures): number {
  return Math.round((LANE.width * height) / width);
}

/** Draws the bars of all requests under a cover that moves to the right with time. */
function growingBars({ bars }: Lane, { seconds }: Race, height: number): Html {
  const own = barsHeight(bars);
  const stretch = Math.min(1, height / own);
  return html`<svg width="${LANE.width}" height="${height}">
    <rect class="track" width="${LANE.width}" height="${height}" />
    <g transform="scale(1 ${at(stretch)})">${phasePaths(bars, LANE.width / seconds)}</g>
    <rect class="cover" y="-1" width="${LANE.width}" height="${height + 2}" />
  </svg>`;
}
