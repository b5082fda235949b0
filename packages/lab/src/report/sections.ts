import { isLive, type Campaign } from '../campaign/campaign-file.js';
import { describeThinkTimes } from '../capture/think-time.js';
import type { CertificateKind } from '../run/certificate.js';
import { IDLE_ENOUGH, MAX_OTHERS_SHARE } from '../campaign/starvation.js';
import type { ArmComparison } from '../compare/compare-campaign.js';
import { describeDisagreement, describeVerdict } from '../compare/comparison-text.js';
import {
  severalPages,
  type Cell,
  type DirectionAchieved,
  type LinkAchieved,
  type Results,
} from './results.js';
import { DEFAULT_CONGESTION, usesQuic } from '../campaign/plan.js';
import { receivesPlaceholder } from '../run/server-command.js';
import { MIN_BLOCKS } from '../statistics/bootstrap.js';
import { tableNotes, tableOf, troubleLines } from './results-table.js';
import { html, prose, type Html } from './html.js';
import { violinPlot } from './violin.js';
import { scrollingTable } from './scrolling-table.js';
import { timelineDrawing, type ReportedLoad } from './timeline-picture.js';
import { waterfall, waterfallEnd, waterfallLegend } from './waterfall.js';

type Colours = (arm: string) => string;

/** Returns one card per profile and page with its violins. */
export function violins(results: Results, colourOf: Colours): Html {
  const cards = profilePages(results).map(({ place, cells, link }) => {
    const asked =
      link === undefined
        ? undefined
        : html`<p class="soft small">${describeLinkSettings(link)}</p>`;
    return html`<article class="card">
      <header>
        <h3>${place}</h3>
        ${asked}
      </header>
      ${violinPlot(cells, colourOf)}${differences(cells, results.comparisons)}
    </article>`;
  });
  return html`<section>
    <h2>Load times</h2>
    <div class="grid">${cards}</div>
    ${howToRead(results)}
  </section>`;
}

function howToRead({ cells }: Results): Html {
  const fewest = Math.min(...cells.map(({ summary }) => summary.n));
  const few =
    fewest < MIN_BLOCKS
      ? `With fewer than ${MIN_BLOCKS} loads a median has no 95 % interval: these shapes and differences are indicative only.`
      : undefined;
  return html`<p class="soft small" style="margin-top:10px">
    Each point is a load, the line is the median, the shape a kernel density estimate (Gaussian,
    Silverman's bandwidth) cut at the fastest and slowest load. ${few}
  </p>`;
}

/** Describes the comparisons of the load times of one profile and page. */
function differences(
  [first]: readonly Cell[],
  { comparisons }: Results['comparisons'],
): Html | undefined {
  const here = (one: ArmComparison): boolean =>
    one.profile === first?.profile && (one.page === undefined || one.page === first.page);
  const own = comparisons.filter((one) => one.metric === 'load' && here(one));
  const words = own.flatMap((one) => {
    if (one.medianRatio === undefined || !Number.isFinite(one.medianRatio.value)) return [];
    const percent = (one.medianRatio.value - 1) * 100;
    const size = `${percent < 0 ? '−' : '+'}${Math.abs(percent).toFixed(1)} %`;
    return [`median of ${one.arm} against ${one.base} ${size}, ${describeVerdict(one)}`];
  });
  if (words.length === 0) return undefined;
  const explained = own.flatMap((one) => describeDisagreement(one) ?? []);
  return html`<p class="soft small">
    ${words.map((each, at) => (at === 0 ? sentence(each) : each)).join('; ')}.
    ${explained.join(' ')}
  </p>`;
}

function sentence(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Returns the table of all figures with its notes. */
export function figures(campaign: Campaign, results: Results, colourOf: Colours): Html {
  const { head, names, rows } = tableOf(results.cells);
  const body = rows.map((row, index) => {
    const places = row.slice(0, names - 1);
    const above = rows[index - 1]?.slice(0, names - 1) ?? [];
    // Names equal to those in the row above are not repeated.
    const changed = places.findIndex((name, at) => name !== above[at]);
    const shown = places.map((name, at) => (changed >= 0 && at >= changed ? name : ''));
    const arm = row[names - 1] ?? '';
    return html`<tr class="${changed >= 0 && index > 0 ? 'first' : ''}">
      ${shown.map((name, at) => html`<td class="${at === 0 ? 'name profile' : 'name'}">${name}</td>`)}
      <td class="name"><span class="swatch" style="--arm:${colourOf(arm)}"></span>${arm}</td>
      ${row.slice(names).map((value) => html`<td>${value}</td>`)}
    </tr>`;
  });
  const notes = tableNotes(campaign, results).map(
    (note) => html`<p class="soft small">${prose(note)}</p>`,
  );
  return html`<section>
    <h2>Figures, in seconds</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of figures', head, names, rows: body })} ${notes}
    </div>
  </section>`;
}

/** Lists loads that are invalid or did not complete, or states that there are none. */
export function trouble(results: Results): Html {
  const lines = troubleLines(results);
  const body =
    lines.length === 0
      ? html`<p class="soft">None: each load is valid and completed.</p>`
      : html`<ul class="trouble">
          ${lines.map((line) => html`<li>${prose(line)}</li>`)}
        </ul>`;
  return html`<section>
    <h2>Loads that are invalid or did not complete</h2>
    <div class="card">${body}</div>
  </section>`;
}

/** Draws the median load of each arm, those of one profile and page on one time axis. */
export function timelines(
  results: Results,
  loads: ReadonlyMap<number, ReportedLoad>,
  colourOf: Colours,
): Html {
  const places = profilePages(results).map(({ place, cells }) => {
    const shown = cells.flatMap((cell) => {
      const load = cell.medianLoad === undefined ? undefined : loads.get(cell.medianLoad);
      return load === undefined ? [] : [load];
    });
    const end = waterfallEnd(shown);
    const cards = shown.map(
      (load) =>
        html`<article class="card">
          <header>
            <h3><span class="swatch" style="--arm:${colourOf(load.arm)}"></span>${load.arm}</h3>
            <p class="soft small">load ${load.load}: ${describeLoad(load)}</p>
          </header>
          ${load.timeline === undefined ? waterfall(load, end) : timelineDrawing(load, load.timeline, load.labels, end)}
        </article>`,
    );
    return cards.length === 0
      ? undefined
      : html`<h3 class="profile">${place}</h3>
          <div class="grid">${cards}</div>`;
  });
  return html`<section>
    <h2>Each arm's median load</h2>
    ${waterfallLegend()}${places}
  </section>`;
}

function describeLoad({ browser }: ReportedLoad): string {
  const connections = new Set(browser.requests.map(({ connectionId }) => connectionId)).size;
  const protocols = [...new Set(browser.requests.map(({ protocol }) => protocol ?? 'none'))].join(
    ', ',
  );
  const end = browser.navigation?.loadEventEnd ?? 0;
  const load =
    browser.outcome === 'completed' ? `${(end / 1000).toFixed(4)} s` : 'did not complete';
  return `${load}, ${browser.requests.length} requests, ${protocols}, ${connections} connection${connections === 1 ? '' : 's'}`;
}

const NOT_SET = 'not set';
const UNSET_IN_WORDS =
  '"not set": the lab could not configure the server, because its command in the plan has no {congestion} or the page was loaded from ' +
  'its own server. Its QUIC uses its default controller.';

/** Returns the requested congestion control of each arm, and what each side reports. */
export function congestion(campaign: Campaign, results: Results): Html {
  const isSet = ({ server }: Campaign['arms'][number]): boolean => {
    const spec = campaign.servers.find(({ name }) => name === server);
    return !isLive(campaign) && spec !== undefined && receivesPlaceholder(spec, 'congestion');
  };
  // The link reports the TCP controllers. A controller other than the default was named in the
  // plan.
  const asked = (arm: Campaign['arms'][number]): string => {
    const nowhere = isLive(campaign) || (arm.protocol === 'h3' && !isSet(arm));
    return nowhere && arm.congestion === DEFAULT_CONGESTION ? 'nothing' : arm.congestion;
  };
  const unset = campaign.arms.some((arm) => usesQuic(arm) && !isSet(arm));
  const rows = campaign.arms.map((arm) => {
    const seen = results.cells
      .filter((cell) => cell.arm === arm.name)
      .map((cell) => cell.congestion);
    const all = (pick: 'serverTcp' | 'clientTcp' | 'clientQuic'): string =>
      [...new Set(seen.flatMap((one) => one[pick]))].join(', ') || '–';
    return html`<tr>
      <td class="name">${arm.name}</td>
      <td class="name">${asked(arm)}</td>
      <td class="name">${all('serverTcp')}</td>
      <td class="name">${all('clientTcp')}</td>
      <td class="name">${usesQuic(arm) ? (isSet(arm) ? arm.congestion : NOT_SET) : '–'}</td>
      <td class="name">${all('clientQuic')}</td>
    </tr>`;
  });
  const head = [
    'arm',
    'requested',
    'server, TCP (probed)',
    'client, TCP (probed)',
    'server, QUIC (as set)',
    'client, QUIC (rehearsal)',
  ];
  return html`<section>
    <h2>Congestion control</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of congestion control', head, names: head.length, rows })}
      <p class="soft small">
        The server sends the page, so the server's side of the arm's own protocol decides.
        Chromium's own is read from the NetLog of a rehearsal, since writing a NetLog slows a load.
        The kernel's default on this machine is ${campaign.environment.tcpCongestionDefault};
        available: ${campaign.environment.tcpCongestionAvailable}.
        ${unset ? UNSET_IN_WORDS : undefined}
      </p>
    </div>
  </section>`;
}

/** Returns the settings of each link and what it achieved over all loads. */
export function links(results: Results): Html {
  const head = [
    'link',
    'direction',
    'asked',
    'packets',
    'lost',
    'queue drops',
    'other drops',
    'worst p99 lateness',
  ];
  const rows = results.links.flatMap(({ profile, up, down }) => [
    directionRow(profile, 'up', up),
    directionRow('', 'down', down),
  ]);
  return html`<section>
    <h2>Links: requested and achieved</h2>
    <div class="card">
      ${scrollingTable({ label: 'Table of links', head, names: 3, rows })}
      <p class="soft small">
        Up is from the client to the server. Lateness is how long after its deadline the link
        delivered a packet; loads with fewer than 100 packets in that direction have no 99th
        percentile. A block in which the link was late is invalid, and so is a load whose devices
        dropped packets.
      </p>
    </div>
  </section>`;
}

function directionRow(profile: string, name: string, one: DirectionAchieved): Html {
  const share =
    one.packets === 0 ? '–' : `${one.lost} (${((100 * one.lost) / one.packets).toFixed(2)} %)`;
  return html`<tr>
    <td class="name profile">${profile}</td>
    <td class="name">${name}</td>
    <td class="name">${describeDirection(one)}</td>
    <td>${one.packets}</td>
    <td>${share}</td>
    <td>${one.queueDropped}</td>
    <td>${one.unaskedDrops}</td>
    <td>
      ${one.worstP99LatenessUs === undefined ? '–' : `${(one.worstP99LatenessUs / 1000).toFixed(3)} ms`}
    </td>
  </tr>`;
}

function describeLinkSettings({ up, down }: LinkAchieved): string {
  return `Down: ${describeDirection(down)}. Up: ${describeDirection(up)}.`;
}

function describeDirection({ asked }: DirectionAchieved): string {
  if (asked === undefined) return 'no link report';
  const rate =
    asked.rate_mbit_per_second === null ? 'no rate limit' : `${asked.rate_mbit_per_second} Mbit/s`;
  const overtaking = asked.reorder === true ? ` ± ${asked.jitter_ms}` : '';
  const pauses =
    asked.jitter_ms > 0 && asked.reorder !== true ? `, pauses of up to ${asked.jitter_ms} ms` : '';
  const bursts =
    asked.loss_burst_packets === undefined ? '' : ` in runs of ${asked.loss_burst_packets} packets`;
  const loss = asked.loss_percent > 0 ? `, ${asked.loss_percent} % loss${bursts}` : '';
  return `${rate}, ${asked.delay_ms}${overtaking} ms${pauses}${loss}`;
}

const HOW =
  "After a rehearsal that does not count, each arm loaded the page once in each block, in an order drawn from the seed and with the same link seed for all arms of the block. The browser ran behind an emulated link, the server in front of it. HTTP/3 arms force QUIC from the first request; the others have QUIC off. A load is valid only if the browser's timeline and its developer tools name the arm's protocol for each request, the link saw bytes of that protocol's transport only, and the link lost only what its profile says. The loads of a block count only if the link kept its deadlines in them.";
const HOW_LIVE =
  "After a rehearsal that does not count, each arm loaded the page once in each block, in an order drawn from the seed, over this machine's own network. HTTP/3 arms force QUIC from the first request; HTTP/1.1 and HTTP/2 arms have QUIC off. A load is valid only if the browser's timeline and its developer tools name the arm's protocol for each request to the page's own host. What the network did meanwhile is unknown; the order of the arms spreads its influence.";

/** Shown only for campaigns whose keys show that they were made this way; older ones lack them. */
const HOW_ALIKE =
  "The orders are drawn so that each arm is equally often in each position. Before each load the lab requested the page at the server's end of the link over each protocol. A load is invalid if a server whose protocols the lab knows did not answer, or if other processes used too much of the machine (below).";

/** Returns how the campaign was made: what a reader needs to judge it or to repeat it. */
export function method(campaign: Campaign, results: Results): Html {
  const { environment: machine, pages, plan, sittings } = campaign;
  const facts: [string, string][] = [
    ['plan', `${plan.file}, sha256 ${plan.sha256.slice(0, 16)}…`],
    ...pages.map((page): [string, string] => ['page', describePage(page)]),
    ...(isLive(campaign) ? [] : serverRows(campaign)),
    ['seed', `${campaign.seed}: the order of the arms in each block, and each link's losses`],
    [
      'profiles',
      campaign.profiles
        .map(({ name, sha256 }) => `${name} (sha256 ${sha256.slice(0, 16)}…)`)
        .join(', '),
    ],
    [
      'browser',
      `Chromium ${machine.chromium}, headless, a fresh profile for each load${describeBrowser(campaign)}`,
    ],
    ...(machine.sandbox === undefined
      ? []
      : [['sandbox', machine.sandbox] satisfies [string, string]]),
    ...(isLive(campaign) ? [] : conditionRows(campaign, results)),
    ...(machine.udpBufferMax === undefined
      ? []
      : [['maximum UDP buffers', machine.udpBufferMax] as [string, string]]),
    [
      'machine',
      `${machine.system}, ${machine.cpus} × ${machine.cpu}, ${machine.memoryMebibytes} MiB`,
    ],
    ['lab', `pronghorn-lab ${machine.lab}, Node.js ${machine.node}`],
    ...sittings.map(({ startedAt, finishedAt }): [string, string] => [
      'time',
      `${startedAt} to ${finishedAt ?? 'unknown'}`,
    ]),
  ];
  return html`<section>
    <h2>How it was measured</h2>
    <div class="card">
      <p>
        ${isLive(campaign) ? HOW_LIVE : HOW}
        ${campaign.certificate === undefined || isLive(campaign) ? undefined : HOW_ALIKE}
      </p>
      <dl>
        ${facts.map(
          ([name, value]) =>
            html`<dt>${name}</dt>
              <dd>${value}</dd>`,
        )}
      </dl>
    </div>
  </section>`;
}

function describeBrowser({ browser, arms }: Campaign): string {
  const repeats = arms.some(({ visit }) => visit !== 'first')
    ? ' (for repeat visits: the first visit)'
    : '';
  return browser === 'warm'
    ? `, warm: it had already shown a page that shares nothing with the measured one${repeats}`
    : '';
}

/** Returns conditions that affect only one of the protocols. */
function conditionRows(campaign: Campaign, { tcpSettings, machine }: Results): [string, string][] {
  const tcp = SHOWN_SETTINGS.flatMap((name) => {
    const values = tcpSettings.get(name);
    return values === undefined ? [] : [`${name} ${values.join(' or ')}`];
  });
  const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;
  return [
    ...(campaign.certificate === undefined
      ? []
      : [['certificate', CERTIFICATE_IN_WORDS[campaign.certificate]] as [string, string]]),
    ...(tcp.length === 0
      ? []
      : [['TCP on the link', `${tcp.join(', ')}; ${AFTER_IDLE}`] as [string, string]]),
    ...(machine === undefined
      ? []
      : [
          [
            'processors',
            `others used ${percent(machine.medianOthersShare)} of them in the median load, at most ${percent(machine.mostOthersShare)} ` +
              `(stolen: ${percent(machine.mostStealShare)}); a block in which they used more than ${percent(MAX_OTHERS_SHARE)} and left fewer than ${IDLE_ENOUGH} idle is invalid`,
          ] as [string, string],
        ]),
    ...(campaign.leftOut ?? []).map(({ arm, reason }): [string, string] => [
      'skipped arm',
      `${arm}: ${reason}`,
    ]),
  ];
}

const SHOWN_SETTINGS = ['tcp_slow_start_after_idle', 'tcp_rmem', 'tcp_wmem', 'tcp_ecn'];
const AFTER_IDLE =
  'with tcp_slow_start_after_idle 0 TCP keeps its window across a pause, as our QUIC does';
const CERTIFICATE_IN_WORDS: Readonly<Record<CertificateKind, string>> = {
  small: 'one self-signed certificate, ECDSA P-256, some 450 bytes',
  'ecdsa-chain': 'a leaf with SCTs and an intermediate, ECDSA, some 2.3 KB',
  'rsa-chain': 'a leaf with SCTs and an intermediate, RSA-2048, some 2.7 KB',
};

function describePage(page: Campaign['pages'][number]): string {
  const { name, url, requests, bytes, sha256, thinkTimes, thinkTimeCounts: counts } = page;
  const size = bytes === undefined ? '' : `, ${bytes} bytes`;
  const hash = sha256 === undefined ? '' : `, sha256 ${sha256.slice(0, 16)}…`;
  const told = counts === undefined ? '' : ` (${describeThinkTimes(counts)})`;
  const think = thinkTimes === true ? `, think times as recorded${told}` : '';
  const what = `${requests ?? 'unknown'} requests${size}${hash}${think}`;
  return url === undefined ? `${name}: ${what}` : `${name}: ${url}, from its own server`;
}

function serverRows({ servers, environment }: Campaign): [string, string][] {
  return servers.flatMap(({ name, args, command, reference, version }): [string, string][] => {
    // A reference server that is not installed has no version.
    if (reference !== undefined)
      return version === undefined ? [] : [['server', `${name}: ${reference} ${version}`]];
    return [
      ['server', `${name}: ${command ?? ['pronghorn', environment.pronghorn, ...args].join(' ')}`],
    ];
  });
}

export interface ProfilePage {
  /** The profile, and the page if there are several. */
  readonly place: string;
  readonly cells: Cell[];
  readonly link: LinkAchieved | undefined;
}

/** Groups the cells that are compared with each other: those of one profile and page. */
export function profilePages({ cells, links }: Results): ProfilePage[] {
  const several = severalPages(cells);
  const places = new Map<string, ProfilePage>();
  for (const cell of cells) {
    const place = several ? `${cell.profile}, ${cell.page}` : cell.profile;
    const link = links.find(({ profile }) => profile === cell.profile);
    const known = places.get(place) ?? { place, cells: [], link };
    known.cells.push(cell);
    places.set(place, known);
  }
  return [...places.values()];
}
