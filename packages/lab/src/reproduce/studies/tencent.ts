import type { Criterion, Metric, PublishedRow, Study } from '../criterion.js';
import { ratioOf, ratioOfRatios, withPublished, type Cell } from '../terms.js';

const FEW = 'tencent-12';
const MANY = 'tencent-many';
const GOOD = 'lte';
const WEAK = 'lte-bad-3';

const at = (profile: string, page: string, arm: string, metric: Metric = 'load'): Cell => ({
  profile,
  page,
  arm,
  metric,
});

/** Returns the median load time of HTTP/3 divided by that of another arm. */
const by = (
  profile: string,
  page: string,
  under: string,
  over = 'h3',
): ReturnType<typeof ratioOf> =>
  ratioOf('median', at(profile, page, over), at(profile, page, under));

const RELEASE_WORDS = {
  requestStart: 'request start',
  firstByte: 'first byte',
  load: 'load end',
} as const;

/**
 * The article's figures: how much faster HTTP/3's predecessor was than each, by number of elements.
 */
const FASTER = [
  { page: FEW, words: '12 elements', than: { http: 0.09, h2: 0.42, h1: 0.52 } },
  { page: MANY, words: 'many elements', than: { http: 0.36, h2: 0.47, h1: 0.64 } },
] as const;

const NAMES = { http: 'HTTP without TLS', h2: 'HTTP/2', h1: 'HTTPS (HTTP/1.1)' } as const;

const OLD_STACKS =
  'the published HTTP/2 and HTTPS used TLS 1.2, with one more round trip than today’s; gQUIC included 0-RTT, which a first visit lacks';

/** The article has shares and no times; these are the cells that are shown. */
const published: PublishedRow[] = [
  ...[GOOD, WEAK].flatMap((profile) =>
    [[FEW, '12 elements'] as const, [MANY, 'many elements'] as const].flatMap(([page, words]) =>
      ['http', 'h1', 'h2', 'h3', 'h3-early-data'].map((arm) =>
        row(`${words}, load end`, at(profile, page, arm)),
      ),
    ),
  ),
  ...(['requestStart', 'firstByte', 'load'] as const).flatMap((metric) =>
    ['h2-resumed', 'h3-early-data'].map((arm) =>
      row(`release, ${RELEASE_WORDS[metric]}`, at(GOOD, MANY, arm, metric)),
    ),
  ),
];

function row(place: string, cell: Cell): PublishedRow {
  return { place, variant: cell.arm, ...cell, figures: {} };
}

const elements = FASTER.flatMap(({ page, words, than }): Criterion[] => [
  ...(['h2', 'h1', 'http'] as const).map((other): Criterion => ({
    id: `${page}-${other}`,
    statement: `4G, ${words}: HTTP/3 in a first visit is faster than ${NAMES[other]}`,
    effect: by(GOOD, page, other),
    claim: { high: 1 },
    published: 1 - than[other],
    expected:
      other === 'http'
        ? {
            verdict: 'open',
            because:
              'HTTP without TLS also needs one round trip before the request, over six connections at once',
          }
        : { verdict: 'reproduced', because: 'at least one round trip less' },
    otherwise: OLD_STACKS,
  })),
  {
    id: `${page}-h2-size`,
    statement: `4G, ${words}: with 0-RTT HTTP/3 takes at most 3/4 of HTTP/2’s time (it was ${Math.round((1 - than.h2) * 100)} %)`,
    effect: by(GOOD, page, 'h2', 'h3-early-data'),
    claim: { high: 0.75 },
    published: 1 - than.h2,
    expected: {
      verdict: 'open',
      because: 'two round trips are saved; their effect depends on the size of the elements',
    },
    otherwise: `${OLD_STACKS}; the sizes of the elements were not published`,
  },
  {
    id: `${page}-order`,
    statement: `4G, ${words}: HTTP/2 is faster than HTTPS over HTTP/1.1`,
    effect: by(GOOD, page, 'h1', 'h2'),
    claim: { high: 1 },
    published: (1 - than.h1) / (1 - than.h2),
    expected: { verdict: 'reproduced', because: 'one connection and no queue of requests' },
    otherwise: 'six connections have six initial windows',
  },
]);

const criteria: Criterion[] = [
  ...elements,
  {
    id: 'more-elements-http',
    statement: '4G: HTTP/3 gains more over HTTP without TLS with many elements than with 12',
    effect: ratioOfRatios(by(GOOD, MANY, 'http'), by(GOOD, FEW, 'http')),
    claim: { high: 1 },
    published: 0.703,
    expected: {
      verdict: 'reproduced',
      because: 'six connections with one request at a time wait more often',
    },
    otherwise:
      'the load time of a page that fills the link depends on its rate, whatever the protocol',
  },
  {
    id: 'more-elements-h2',
    statement: '4G: HTTP/3 gains more over HTTP/2 with many elements than with 12',
    effect: ratioOfRatios(by(GOOD, MANY, 'h2'), by(GOOD, FEW, 'h2')),
    claim: { high: 1 },
    published: 0.914,
    expected: {
      verdict: 'not reproduced',
      because: 'one saved round trip is a smaller part of a longer load',
    },
    otherwise:
      'the load time of a page that fills the link depends on its rate, whatever the protocol',
  },
  ...([FEW, MANY] as const).flatMap((page): Criterion[] => [
    {
      id: `${page}-weak`,
      statement: `weak network (3 % loss), ${page === FEW ? '12' : 'many'} elements: HTTP/3 is at least a fifth faster than HTTP/2`,
      effect: by(WEAK, page, 'h2'),
      claim: { high: 0.8 },
      published: 0.8,
      expected: { verdict: 'open', because: 'the meaning of "weak" was not published' },
      otherwise: 'loss, delay and rate of the weak network were not published',
    },
    {
      id: `${page}-weak-more`,
      statement: `${page === FEW ? '12' : 'many'} elements: HTTP/3 gains more over HTTP/2 on the weak network than on 4G`,
      effect: ratioOfRatios(by(WEAK, page, 'h2'), by(GOOD, page, 'h2')),
      claim: { high: 1 },
      published: 0.941,
      expected: {
        verdict: 'open',
        because: 'a lost packet delays all of HTTP/2, but only one stream of HTTP/3',
      },
      otherwise: 'loss, delay and rate of the weak network were not published',
    },
  ]),
  ...(
    [
      ['requestStart', undefined, '250 ms earlier'],
      ['firstByte', 0.75, '326 ms or 25 % earlier'],
      ['load', 0.78, '2 s or 22 % earlier'],
    ] as const
  ).map(([metric, figure, said]): Criterion => ({
    id: `release-${metric}`,
    statement: `4G, many elements, as in the gradual release: ${RELEASE_WORDS[metric]} of HTTP/3 with 0-RTT before that of HTTP/2 with a resumed session (it was ${said})`,
    effect: ratioOf(
      'median',
      at(GOOD, MANY, 'h3-early-data', metric),
      at(GOOD, MANY, 'h2-resumed', metric),
    ),
    claim: { high: 1 },
    ...(figure !== undefined && { published: figure }),
    expected: { verdict: 'reproduced', because: 'the request leaves with the first flight' },
    otherwise:
      'the release was measured with real users, whose links, pages and shares of resumed sessions are not reproduced here',
  })),
];

/** Tencent, 2018. */
export const tencent: Study = {
  name: 'tencent',
  title: 'A gateway’s QUIC against HTTP/2, HTTPS and HTTP (Tencent STGW, 2018)',
  source:
    'Tencent STGW, 2018: Google’s QUIC in Android Chrome and on a PC, driven by a script with caching off, timings reported at `onload`; pages with ' +
    '12 and with more elements, made from statistics of httparchive.org. It also describes a gradual release to real users.',
  metric:
    'End of the load event (`load`); for the release also first byte (`firstByte`) and the start of the document’s request (`requestStart`). ' +
    '"42 % faster" is read as 42 % less time.',
  published,
  conclusions: [
    '12 elements: QUIC 9 % faster than HTTP, 42 % than HTTP/2, 52 % than HTTPS',
    'many elements: 36 %, 47 % and 64 %',
    'headline: 15 % faster, over 20 % on weak networks',
    'release: request start 250 ms earlier, first byte 326 ms (25 %), load end 2 s of about 9 s (22 %)',
  ],
  criteria: criteria.map((each) => withPublished(each, published)),
  differences: [
    'Protocol: HTTP/3 instead of the article’s Google QUIC; TLS 1.3 instead of TLS 1.2.',
    'Client: Chromium on a PC; no phone.',
    'Pages: 12 and 100 pictures of 20 KB; the published number for "many" and the sizes are unknown.',
    'Links: WebPageTest’s LTE, and an LTE link with 170 ms and 3 % loss for "weak"; the real ones were not published.',
    'The release is represented by one page instead of many sites.',
  ],
};
