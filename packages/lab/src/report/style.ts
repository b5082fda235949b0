import type { Campaign } from '../campaign/campaign-file.js';

/** Number of arm colours; red-green colour-blind readers can distinguish them. */
export const ARM_COLOURS = 6;

/** Returns the number of an arm's colour. */
export function armColour(campaign: Campaign, arm: string): number {
  const index = campaign.arms.findIndex(({ name }) => name === arm);
  return Math.max(0, index) % ARM_COLOURS;
}

/** The colours of both schemes, as custom properties. */
export const COLOURS = {
  light: `
  --page: #f6f7f9; --card: #ffffff; --line: #e2e5ea; --text: #1b2330; --soft: #5c6675; --grid: #e9ecf0;
  --edge: #7d8694; --focus: #1f5fd0; --running: #9a5b00;
  --good: #1a7f4b; --bad: #b3261e; --bad-page: #fdecea;
  --blocked: #c9ced6; --connect: #f2a33a; --wait: #6aa9e9; --receive: #2f6fb7;
  --arm-0: #3b6fd4; --arm-1: #e07a1f; --arm-2: #1f9a8a; --arm-3: #a24fc1; --arm-4: #8a8f2b; --arm-5: #c2415b;
`,
  dark: `
  --page: #12161c; --card: #1a2029; --line: #2c3440; --text: #e6eaf0; --soft: #9aa5b4; --grid: #28303b;
  --edge: #76818f; --focus: #7aa5ff; --running: #ffb765;
  --good: #5fcf94; --bad: #ff8a80; --bad-page: #3a1f1d;
  --blocked: #4a5361; --connect: #d98f2b; --wait: #4f8fd0; --receive: #8cc0f5;
  --arm-0: #7aa5ff; --arm-1: #ffa95c; --arm-2: #5fd0c0; --arm-3: #d191ea; --arm-4: #c8cd6a; --arm-5: #ff8ba0;
`,
};

export const STYLE = `
:root { color-scheme: light dark; ${COLOURS.light} }
@media (prefers-color-scheme: dark) { :root { ${COLOURS.dark} } }
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1160px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 36px 0 12px; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0 0 10px; }
.soft { color: var(--soft); }
.small { font-size: 0.86rem; }
.facts { display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 999px; padding: 3px 12px; font-size: 0.86rem; }
.facts b { font-weight: 600; }
.good { color: var(--good); }
.bad { color: var(--bad); }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; min-width: 0; }
.card header { margin-bottom: 8px; }
.card header p { margin: 0; }
.card h3.profile, h3.profile { margin: 20px 0 10px; }
.scroll + p { margin-top: 12px; }
.violin { display: flex; justify-content: safe center; overflow-x: auto; }
.violin svg { flex: none; height: auto; display: block; }
.violin .scale { position: sticky; left: 0; background: var(--card); }
@media (min-width: 700px) { .violin.few svg { zoom: 1.3; } }
.violin text { fill: var(--soft); font-size: 12px; }
.violin .label { fill: var(--text); font-weight: 600; font-size: 13px; }
.violin .value { fill: var(--text); font-size: 12px; paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
.violin .rule { stroke: var(--grid); }
.violin .base { stroke: var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { padding: 6px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); white-space: normal; vertical-align: bottom; }
th.name, td.name { text-align: left; }
tr.first td { border-top: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; }
td.name.profile { font-weight: 600; }
.swatch { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 3px; margin-right: 0.45em; background: var(--arm); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 12px; font-size: 0.86rem; color: var(--soft); }
.legend i { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 6px; }
.waterfall { position: relative; isolation: isolate; margin-top: 10px; font-size: 0.74rem; line-height: 16px; }
.row { display: grid; grid-template-columns: 104px 46px 1fr; column-gap: 6px; }
.row:nth-child(odd) .track { background: color-mix(in srgb, var(--grid) 45%, transparent); }
.row .path { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.row .protocol { color: var(--soft); }
.track { position: relative; height: 16px; }
.track i { position: absolute; top: 3px; height: 10px; min-width: 1px; }
.blocked { background: var(--blocked); }
.connect { background: var(--connect); }
.wait { background: var(--wait); }
.receive { background: var(--receive); }
.axis .track { height: 20px; color: var(--soft); background: none; }
.row.axis .track { background: none; }
.axis .track span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.axis .track span:first-child { transform: none; }
.axis .track span.last { transform: translateX(-100%); }
.marks { position: absolute; inset: 0; display: grid; grid-template-columns: 104px 46px 1fr; column-gap: 6px; pointer-events: none; z-index: 1; }
.marks.behind { z-index: -1; }
.marks div { position: relative; grid-column: 3; }
.marks s { position: absolute; top: 0; bottom: 20px; width: 0; border-left: 1.5px dashed var(--soft); }
.marks s.tick { border-left: 1px solid var(--line); }
.marks s.load { border-left: 2px solid var(--text); }
.forest { display: grid; gap: 2px; font-size: 0.86rem; }
.forest > div { display: grid; grid-template-columns: minmax(120px, 220px) 1fr 168px; column-gap: 12px; align-items: center; }
.forest .track { position: relative; height: 22px; }
.forest .ratio .track::before { content: ""; position: absolute; inset: -1px auto -1px var(--one); border-left: 1.5px solid var(--soft); }
.forest .track i { position: absolute; top: 9.5px; height: 3px; background: currentColor; border-radius: 2px; }
.forest .track b { position: absolute; top: 6px; width: 10px; height: 10px; margin-left: -5px; border-radius: 50%; background: currentColor; }
.forest .track u { position: absolute; top: 0; line-height: 22px; text-decoration: none; }
.forest .track u.left { left: -6px; }
.forest .track u.right { right: -6px; }
.forest .axis .track span { position: absolute; transform: translateX(-50%); color: var(--soft); }
.found { font-weight: 600; }
.comparisons { margin-top: 16px; }
.comparisons td:last-child { white-space: normal; min-width: 11em; }
.comparisons tr.explained td { border-bottom: 0; padding-bottom: 0; }
.comparisons td .explanation { position: sticky; left: 10px; width: max-content; max-width: min(60em, calc(100vw - 64px)); color: var(--soft); }
figure { margin: 0 0 16px; }
figcaption { font-weight: 600; margin-bottom: 8px; }
.controls { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; margin-bottom: 12px; }
.controls[hidden] { display: none; }
.controls button { font: inherit; font-size: 0.9rem; color: var(--text); background: var(--page); border: 1px solid var(--edge); border-radius: 8px; padding: 6px 14px; min-width: 5.2em; cursor: pointer; }
.controls button:hover { border-color: var(--text); }
.controls input { flex: 1 1 160px; min-width: 120px; height: 28px; accent-color: var(--focus); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 4px; }
.lanes { display: grid; gap: 10px; grid-template-columns: repeat(auto-fit, minmax(min(50% - 5px, 200px), 1fr)); }
.lane { display: grid; grid-template-columns: 1fr auto; align-content: start; min-width: 0; max-width: 440px; }
.lane p { margin: 0; }
.lane .small, .lane svg { grid-column: 1 / -1; }
.lane .clock { font-size: 1.15rem; font-weight: 600; }
.lane.running .clock { color: var(--running); }
.lane svg { display: block; width: 100%; margin-top: 8px; }
svg.screen, .strip svg { background: #fff; border: 1px solid var(--edge); border-radius: 4px; }
.requests { background: color-mix(in srgb, var(--grid) 45%, transparent); }
path.blocked { fill: var(--blocked); }
path.connect { fill: var(--connect); }
path.wait { fill: var(--wait); }
path.receive { fill: var(--receive); }
.film { margin-bottom: 16px; }
.film .scroll > p { position: sticky; left: 0; width: max-content; max-width: 100%; margin: 8px 0 4px; }
.strip { display: flex; gap: 6px; margin: 0; padding: 0; list-style: none; width: max-content; }
.strip li { width: 92px; font-size: 0.8rem; color: var(--soft); }
.strip svg { display: block; width: 100%; }
.strip li.marked { color: var(--text); font-weight: 600; }
.strip li.marked svg { border-color: var(--text); box-shadow: 0 0 0 1px var(--text); }
.strip b { display: block; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; font-size: 0.9rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
ul.trouble { margin: 0; padding-left: 1.1em; }
ul.trouble li { margin-bottom: 4px; overflow-wrap: anywhere; }
.notice { background: var(--bad-page); border: 1px solid var(--bad); border-radius: 10px; padding: 10px 14px; margin-top: 16px; }
footer { margin-top: 36px; color: var(--soft); font-size: 0.86rem; }
@media (max-width: 520px) {
  main { padding: 20px 12px 36px; }
  .card { padding: 12px; }
  .row, .marks { grid-template-columns: 86px 32px 1fr; column-gap: 4px; }
  .forest > div { grid-template-columns: 1fr; }
  .forest .ratio > span:last-child { margin-bottom: 8px; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print {
  :root { color-scheme: light; }
  body { background: none; }
  .card, .row, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .controls { display: none; }
  .scroll, .violin { overflow: visible; }
  .strip { flex-wrap: wrap; width: auto; }
  * { print-color-adjust: exact; }
}
`;
