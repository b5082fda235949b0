import type { Criterion, Metric, PublishedRow, Study } from '../criterion.js';
import { ratioOf, ratioOfRatios, withPublished, type Cell } from '../terms.js';

const SMALL = 'cloudflare-15k';
const LARGE = 'cloudflare-1m';

/** Where it is measured here, with the round trip in seconds. */
const LINKS = [
  { profile: 'cable', words: 'cable', roundTrip: 0.028 },
  { profile: 'lte-loss', words: 'LTE with 0.1 % loss', roundTrip: 0.07 },
] as const;

const at = (profile: string, page: string, arm: string, metric: Metric = 'load'): Cell => ({
  profile,
  page,
  arm,
  metric,
});

/** The article gives one figure a protocol, from places all over the world: HTTP/3 with CUBIC, HTTP/2 with BBR. */
const published: PublishedRow[] = LINKS.flatMap(({ profile }) => [
  row('15 KB page', 'HTTP/3', at(profile, SMALL, 'h3-cubic'), 0.443),
  row('15 KB page', 'HTTP/2', at(profile, SMALL, 'h2-bbr'), 0.458),
  row('1 MB page', 'HTTP/3', at(profile, LARGE, 'h3-cubic'), 2.33),
  row('1 MB page', 'HTTP/2', at(profile, LARGE, 'h2-bbr'), 2.3),
  row('first byte', 'HTTP/3', at(profile, SMALL, 'h3-early-data', 'firstByte'), 0.176),
  row('first byte', 'HTTP/2', at(profile, SMALL, 'h2-resumed', 'firstByte'), 0.201),
]);

function row(place: string, variant: string, cell: Cell, mean: number): PublishedRow {
  return { place, variant, ...cell, figures: { mean } };
}

const CONTROLLERS = 'a controller of one name is not one algorithm in two stacks: see the conformance check';

const criteria: Criterion[] = LINKS.flatMap(({ profile, words, roundTrip }): Criterion[] => {
  const pair = (page: string, h3: string, h2: string, metric: Metric = 'load'): ReturnType<typeof ratioOf> =>
    ratioOf('median', at(profile, page, h3, metric), at(profile, page, h2, metric));
  const mean = (page: string): ReturnType<typeof ratioOf> =>
    ratioOf('mean', at(profile, page, 'h3-cubic'), at(profile, page, 'h2-bbr'));
  return [
    {
      id: `${profile}-15k-published-pair`,
      statement: `${words}, 15 KB: HTTP/3 with CUBIC is ahead of HTTP/2 with BBR`,
      effect: mean(SMALL),
      claim: { high: 1 },
      expected: { verdict: 'reproduced', because: 'fifteen kilobytes never meet a controller; the handshake decides' },
      otherwise: 'a page so small that starting the browser’s work outweighs a round trip',
    },
    {
      id: `${profile}-15k-round-trips`,
      statement: `${words}, 15 KB, CUBIC under both: HTTP/3 saves about one round trip (0.5 to 1.5)`,
      effect: {
        kind: 'difference',
        of: { ...at(profile, SMALL, 'h2-cubic'), figure: 'median' },
        less: { ...at(profile, SMALL, 'h3-cubic'), figure: 'median' },
        unit: 'round trips',
        unitSeconds: roundTrip,
      },
      claim: { low: 0.5, high: 1.5 },
      expected: { verdict: 'reproduced', because: 'TCP and TLS 1.3 need two round trips before the request, QUIC one' },
      otherwise:
        'a response that just does not fit into the initial window costs a round trip more on one of the two sides',
    },
    {
      id: `${profile}-1m-published-pair`,
      statement: `${words}, 1 MB: HTTP/3 with CUBIC is not ahead of HTTP/2 with BBR (2 % lower at most, 10 % higher at most)`,
      effect: mean(LARGE),
      claim: { low: 0.98, high: 1.1 },
      expected: {
        verdict: 'open',
        because: 'on a link without loss both fill it; with loss BBR does not slow down for it',
      },
      otherwise: 'the published places had losses and queues that nobody wrote down; ' + CONTROLLERS,
    },
    {
      id: `${profile}-crossover`,
      statement: `${words}: what the published HTTP/3 is ahead by at 15 KB, it loses at 1 MB`,
      effect: ratioOfRatios(mean(LARGE), mean(SMALL)),
      claim: { low: 1 },
      expected: { verdict: 'reproduced', because: 'one saved round trip is less of a longer load' },
      otherwise: 'HTTP/3 that gains during the transfer too, by what it does about losses',
    },
    {
      id: `${profile}-1m-cubic`,
      statement: `${words}, 1 MB, CUBIC under both: no difference beyond 5 %`,
      effect: pair(LARGE, 'h3-cubic', 'h2-cubic'),
      claim: { low: 0.95, high: 1.05 },
      expected: {
        verdict: 'reproduced',
        because: 'named as future work there: the same algorithm under both protocols',
      },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-1m-bbr`,
      statement: `${words}, 1 MB, BBR under both: no difference beyond 5 %`,
      effect: pair(LARGE, 'h3-bbr', 'h2-bbr'),
      claim: { low: 0.95, high: 1.05 },
      expected: { verdict: 'open', because: 'two implementations of BBR differ more than two of CUBIC' },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-1m-h2-controller`,
      statement: `${words}, 1 MB over HTTP/2: CUBIC by BBR`,
      effect: pair(LARGE, 'h2-cubic', 'h2-bbr'),
      expected: { verdict: 'open', because: 'how much of the published difference the controller alone makes' },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-first-byte-first-visit`,
      statement: `${words}: in a first visit HTTP/3 has the first byte earlier`,
      effect: pair(SMALL, 'h3-cubic', 'h2-cubic', 'firstByte'),
      claim: { high: 1 },
      expected: { verdict: 'reproduced', because: 'one round trip less' },
      otherwise: 'no reason was seen beforehand',
    },
    {
      id: `${profile}-first-byte-0rtt`,
      statement: `${words}: HTTP/3 with 0-RTT has the first byte 5 % or more before HTTP/2 with a resumed session (it was 12.4 %)`,
      effect: ratioOf(
        'mean',
        at(profile, SMALL, 'h3-early-data', 'firstByte'),
        at(profile, SMALL, 'h2-resumed', 'firstByte'),
      ),
      claim: { high: 0.95 },
      expected: { verdict: 'reproduced', because: 'one round trip instead of three, where nothing else takes time' },
      otherwise:
        'the published times hold DNS and the server’s own work, of which there is next to none here, and few visits resume',
    },
    {
      id: `${profile}-first-byte-early-data-both`,
      statement: `${words}: with early data on both sides HTTP/3 still has the first byte earlier`,
      effect: pair(SMALL, 'h3-early-data', 'h2-early-data', 'firstByte'),
      claim: { high: 1 },
      expected: { verdict: 'reproduced', because: 'TCP has to connect before it can send early data' },
      otherwise: 'no reason was seen beforehand',
    },
  ];
});

/** Cloudflare, April 2020. */
export const cloudflare: Study = {
  name: 'cloudflare',
  title: 'HTTP/3 and HTTP/2 of an edge, and the same controller under both (Cloudflare, April 2020)',
  source:
    'Cloudflare, April 2020: WebPageTest from places around the world, drafts of HTTP/3, HTTP/2 with BBR v1 and HTTP/3 with CUBIC. ' +
    'One figure a protocol and page. The same algorithm under both protocols is named there as future work.',
  metric:
    'Pages to the end of the load event (`load`), the first byte of the document (`firstByte`). The published figures are taken to be means.',
  published,
  conclusions: [
    'first byte 12.4 % earlier over HTTP/3, with 0-RTT',
    'a 15 KB page 3 % faster over HTTP/3, a 1 MB page 1 % slower',
    'a real blog 1 to 4 % slower over HTTP/3 in North America, alike elsewhere: explained by the two controllers',
  ],
  criteria: criteria.map((each) => withPublished(each, published)),
  differences: [
    'Links: the places, their losses and queues were not published; here are WebPageTest’s cable link and an LTE link with few losses.',
    'Pages: one document without parts, as in the article; the real blog is not reproduced.',
    'Versions: RFC 9114 and QUIC version 1 where the article had drafts; both protocols from one server.',
    'Which visits its first bytes were of was not published: with 0-RTT stands here for HTTP/3, a resumed session for HTTP/2.',
  ],
};
