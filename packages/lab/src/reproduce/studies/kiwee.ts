import type { Criterion, PublishedRow, Study } from '../criterion.js';
import { ratioOf, ratioOfRatios, withPublished, type Cell, type FigureName } from '../terms.js';

const PAGE = 'kiwee-like';

type Figures = readonly [
  median: number,
  mean: number,
  p90: number,
  p99: number,
  min: number,
  max: number,
];

/** The article's table in seconds: each place with the profiles that represent it here. */
const TABLE: readonly { place: string; profiles: readonly string[]; h3: Figures; h2: Figures }[] = [
  {
    place: 'Nuremberg',
    profiles: ['dc-near'],
    h3: [0.635, 0.6472, 0.755, 0.875, 0.482, 1.263],
    h2: [0.549, 0.8623, 1.766, 2.061, 0.42, 2.199],
  },
  {
    place: 'Helsinki',
    profiles: ['dc-mid'],
    h3: [0.6465, 0.6702, 0.804, 0.909, 0.536, 0.921],
    h2: [0.695, 0.9317, 1.796, 2.5, 0.555, 2.842],
  },
  {
    place: 'Virginia',
    profiles: ['dc-far'],
    h3: [1.28, 1.3491, 1.522, 1.921, 1.143, 2.173],
    h2: [1.674, 1.7942, 2.191, 2.937, 1.284, 4.871],
  },
  {
    place: 'fibre',
    profiles: ['fibre'],
    h3: [0.839, 0.8856, 1.013, 1.014, 0.753, 1.428],
    h2: [0.8155, 1.0117, 1.315, 1.323, 0.727, 2.904],
  },
  {
    place: 'LTE',
    profiles: ['lte'],
    h3: [1.602, 1.7172, 1.874, 2.569, 1.235, 2.723],
    h2: [1.2035, 1.3895, 1.547, 1.819, 0.896, 3.431],
  },
  {
    place: 'LTE +100 ms, ~15 % loss',
    // The article does not say which way the loss was; `tc` on its laptop shapes what the laptop
    // sends.
    profiles: ['lte-bad', 'lte-bad-uplink'],
    h3: [6.028, 6.6856, 9.317, 9.349, 4.023, 9.774],
    h2: [8.94, 12.8554, 27.638, 28.441, 5.921, 36.713],
  },
];

const cell = (profile: string, arm: 'h2' | 'h3'): Cell => ({
  profile,
  page: PAGE,
  arm,
  metric: 'lastByte',
});

const published: PublishedRow[] = TABLE.flatMap(({ place, profiles, h3, h2 }) =>
  profiles.flatMap((profile) => [
    { place, variant: 'h3', ...cell(profile, 'h3'), figures: named(h3) },
    { place, variant: 'h2', ...cell(profile, 'h2'), figures: named(h2) },
  ]),
);

function named([median, mean, p90, p99, min, max]: Figures): PublishedRow['figures'] {
  return { median, mean, p90, p99, min, max };
}

const against = (figure: FigureName, profile: string): ReturnType<typeof ratioOf> =>
  ratioOf(figure, cell(profile, 'h3'), cell(profile, 'h2'));

const SECOND_STEP =
  'the published HTTP/2 tail lies 1.1 to 1.2 s above its median, which is one timer (a SYN resent after one second, or DNS), ' +
  'not the transfer; a link without lost SYNs has no such tail';

const BAD_LINKS = [
  { profile: 'lte-bad', way: 'both ways' },
  { profile: 'lte-bad-uplink', way: 'on the uplink only' },
] as const;

const badLink = BAD_LINKS.flatMap(({ profile, way }): Criterion[] => {
  const otherwise =
    'direction and pattern of the loss, page size and the congestion control of the server were not published; ' +
    'with loss on the uplink only, only requests and acknowledgements are lost, which affects both protocols little once connected';
  return [
    {
      id: `${profile}-median`,
      statement: `15 % loss ${way}: the median of HTTP/3 is lower`,
      effect: against('median', profile),
      claim: { high: 1 },
      expected: {
        verdict: 'reproduced',
        because: 'one round trip less, and fewer packets whose loss delays the start',
      },
      otherwise,
    },
    {
      id: `${profile}-mean`,
      statement: `15 % loss ${way}: the mean of HTTP/3 is lower by a fifth or more (the article concludes 52 %, its table gives 48 %)`,
      effect: against('mean', profile),
      claim: { high: 0.8 },
      expected: {
        verdict: 'open',
        because: 'the size of the gain depends on unpublished parameters',
      },
      otherwise,
    },
    {
      id: `${profile}-p90`,
      statement: `15 % loss ${way}: the 90th percentile of HTTP/3 is lower`,
      effect: against('p90', profile),
      claim: { high: 1 },
      expected: {
        verdict: 'reproduced',
        because: 'a lost SYN costs one second, and losing it twice costs three',
      },
      otherwise,
    },
    {
      id: `${profile}-tail`,
      statement: `15 % loss ${way}: HTTP/3 gains more at the 90th percentile than at the median`,
      effect: ratioOfRatios(against('p90', profile), against('median', profile)),
      claim: { high: 1 },
      expected: { verdict: 'open', because: 'fifty loads say little about a ratio of two tails' },
      otherwise,
    },
  ];
});

const criteria: Criterion[] = [
  {
    id: 'far-median',
    statement: 'far data centre: the median of HTTP/3 is 10 to 40 % lower',
    effect: against('median', 'dc-far'),
    claim: { low: 0.6, high: 0.9 },
    expected: {
      verdict: 'reproduced',
      because: 'one round trip of 95 ms less in a load of a few round trips',
    },
    otherwise:
      'the longer the load, the less a saved round trip matters: page size and initial window decide',
  },
  {
    id: 'far-mean',
    statement:
      'far data centre: the mean of HTTP/3 is lower by a tenth or more (the article concludes 25 %)',
    effect: against('mean', 'dc-far'),
    claim: { high: 0.9 },
    expected: {
      verdict: 'reproduced',
      because: 'as for the median: there are few outliers on this link',
    },
    otherwise: 'the published means include the outliers of a real path',
  },
  {
    id: 'far-p90',
    statement: 'far data centre: the 90th percentile of HTTP/3 is lower',
    effect: against('p90', 'dc-far'),
    claim: { high: 1 },
    expected: {
      verdict: 'reproduced',
      because: 'slow loads save the round trip too',
    },
    otherwise: SECOND_STEP,
  },
  {
    id: 'near-median',
    statement:
      'near data centre: the medians are close, or HTTP/2 is ahead (HTTP/3 at most 5 % lower)',
    effect: against('median', 'dc-near'),
    claim: { low: 0.95 },
    expected: {
      verdict: 'open',
      because: 'a saved round trip of 10 ms is offset by QUIC’s processing in user space',
    },
    otherwise:
      'the published server was an nginx of 2023 without segmentation offload for QUIC and with 64 KB per round trip',
  },
  {
    id: 'near-p90',
    statement: 'near data centre: the 90th percentile of HTTP/3 is less than half (it was 43 %)',
    effect: against('p90', 'dc-near'),
    claim: { high: 0.5 },
    expected: { verdict: 'not reproduced', because: SECOND_STEP },
    otherwise: SECOND_STEP,
  },
  {
    id: 'mid-median',
    statement:
      'middle distance: the median of HTTP/3 is up to a fifth lower, and not higher by more than 2 %',
    effect: against('median', 'dc-mid'),
    claim: { low: 0.8, high: 1.02 },
    expected: { verdict: 'reproduced', because: 'between near and far: 28 ms are saved' },
    otherwise: 'the page’s size decides how much of a load one round trip is',
  },
  {
    id: 'fibre-median',
    statement: 'fibre: the medians differ by 10 % at most, either way',
    effect: against('median', 'fibre'),
    claim: { low: 0.9, high: 1.1 },
    expected: { verdict: 'open', because: 'a round trip of 25 ms is about a tenth of a load' },
    otherwise: 'the published laptop was on Wi-Fi, whose losses and delays are not in this link',
  },
  {
    id: 'lte-median',
    statement: 'LTE without loss: the median of HTTP/3 is higher (it was 33 % higher)',
    effect: against('median', 'lte'),
    claim: { low: 1 },
    expected: {
      verdict: 'not reproduced',
      because:
        'with the same congestion control, initial window and server for both protocols, nothing remains that would make HTTP/3 slower',
    },
    otherwise:
      'the nginx of 2023 had no CUBIC for QUIC and sent at most 64 KB per round trip on each stream, and a laptop processes QUIC’s packets ' +
      'in user space; here both protocols have the same server, the same CUBIC and the same initial window',
  },
  ...badLink,
];

/** Kiwee, 2023. */
export const kiwee: Study = {
  name: 'kiwee',
  title: 'A browser benchmark of HTTP/3 and HTTP/2 from six places (Kiwee, 2023)',
  source:
    'Kiwee, 2023: Puppeteer and headless Chrome, 50 loads of a static page from a content management system over HTTP/3 (forced) and 50 with ' +
    'QUIC off, each in a new container; an nginx in northern Germany. Its notebook keeps only the loads with the most common number of requests.',
  metric:
    'The article measures to the end of the last-started request before the first one made by a script. No script on the page here makes ' +
    'requests, so the time here is that of the last byte of everything that the page links (`lastByte`).',
  published,
  conclusions: [
    'intercontinental, HTTP/3 is 25 % faster in the mean',
    'on the bad mobile link, HTTP/3 is 52 % faster (the table’s means give 48 %)',
    'near and stable, HTTP/3 is slightly ahead in the mean, while HTTP/2 has the lower medians',
    'the slowest loads (p90, p99) are far better over HTTP/3, with one exception',
  ],
  criteria: criteria.map((each) => withPublished(each, published)),
  differences: [
    'Page: its size and parts were not published; the one here has 41 static parts and 1.2 MB.',
    'Links: the round trips were not published; the profiles are estimates, without the cross traffic and the timers of a real path.',
    'Rates: the data-centre links have 300 Mbit/s here, which two cores can sustain.',
    'Server: Pronghorn for both protocols, CUBIC and an initial window of 10 packets on both, instead of the article’s nginx of 2023.',
    'The source excluded loads that failed or had another number of requests; here they count as slower than all others.',
  ],
};
