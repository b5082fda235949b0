import type { Criterion, Metric, PublishedRow, Study } from '../criterion.js';
import { ratioOf, ratioOfRatios, withPublished, type Cell } from '../terms.js';

const SMALL = 'cloudflare-15k';
const LARGE = 'cloudflare-1m';

/** Links used here, with their round trips in seconds. */
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

/**
 * The article has one figure per protocol, from places all over the world: HTTP/3 with CUBIC,
 * HTTP/2 with BBR.
 */
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

const CONTROLLERS =
  'controllers of the same name differ between two stacks: see the conformance check';

const criteria: Criterion[] = LINKS.flatMap(({ profile, words, roundTrip }): Criterion[] => {
  const pair = (
    page: string,
    h3: string,
    h2: string,
    metric: Metric = 'load',
  ): ReturnType<typeof ratioOf> =>
    ratioOf('median', at(profile, page, h3, metric), at(profile, page, h2, metric));
  const mean = (page: string): ReturnType<typeof ratioOf> =>
    ratioOf('mean', at(profile, page, 'h3-cubic'), at(profile, page, 'h2-bbr'));
  return [
    {
      id: `${profile}-15k-published-pair`,
      statement: `${words}, 15 KB: HTTP/3 with CUBIC is ahead of HTTP/2 with BBR`,
      effect: mean(SMALL),
      claim: { high: 1 },
      expected: {
        verdict: 'reproduced',
        because: 'fifteen kilobytes never reach the limits of a controller; the handshake decides',
      },
      otherwise: 'the page is so small that the browser’s own work outweighs a round trip',
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
      expected: {
        verdict: 'reproduced',
        because: 'TCP and TLS 1.3 need two round trips before the request, QUIC one',
      },
      otherwise:
        'a response slightly larger than the initial window costs one protocol an additional round trip',
    },
    {
      id: `${profile}-1m-published-pair`,
      statement: `${words}, 1 MB: HTTP/3 with CUBIC is not ahead of HTTP/2 with BBR (between 2 % lower and 10 % higher)`,
      effect: mean(LARGE),
      claim: { low: 0.98, high: 1.1 },
      expected: {
        verdict: 'open',
        because: 'without loss both fill the link; with loss BBR does not slow down',
      },
      otherwise: 'the losses and queues of the published places are unknown; ' + CONTROLLERS,
    },
    {
      id: `${profile}-crossover`,
      statement: `${words}: the lead of the published HTTP/3 at 15 KB is lost at 1 MB`,
      effect: ratioOfRatios(mean(LARGE), mean(SMALL)),
      claim: { low: 1 },
      expected: {
        verdict: 'reproduced',
        because: 'one saved round trip is a smaller part of a longer load',
      },
      otherwise: 'HTTP/3 may also gain during the transfer through its loss recovery',
    },
    {
      id: `${profile}-1m-cubic`,
      statement: `${words}, 1 MB, CUBIC under both: no difference beyond 5 %`,
      effect: pair(LARGE, 'h3-cubic', 'h2-cubic'),
      claim: { low: 0.95, high: 1.05 },
      expected: {
        verdict: 'reproduced',
        because: 'the same algorithm under both protocols; the source names it as future work',
      },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-1m-bbr`,
      statement: `${words}, 1 MB, BBR under both: no difference beyond 5 %`,
      effect: pair(LARGE, 'h3-bbr', 'h2-bbr'),
      claim: { low: 0.95, high: 1.05 },
      expected: {
        verdict: 'open',
        because: 'two implementations of BBR differ more than two of CUBIC',
      },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-1m-h2-controller`,
      statement: `${words}, 1 MB over HTTP/2: CUBIC relative to BBR`,
      effect: pair(LARGE, 'h2-cubic', 'h2-bbr'),
      expected: {
        verdict: 'open',
        because: 'it shows how much of the published difference is due to the controller alone',
      },
      otherwise: CONTROLLERS,
    },
    {
      id: `${profile}-first-byte-first-visit`,
      statement: `${words}: in a first visit HTTP/3 has the first byte earlier`,
      effect: pair(SMALL, 'h3-cubic', 'h2-cubic', 'firstByte'),
      claim: { high: 1 },
      expected: { verdict: 'reproduced', because: 'one round trip less' },
      otherwise: 'none was foreseen',
    },
    {
      id: `${profile}-first-byte-0rtt`,
      statement: `${words}: HTTP/3 with 0-RTT has the first byte at least 5 % before HTTP/2 with a resumed session (it was 12.4 %)`,
      effect: ratioOf(
        'mean',
        at(profile, SMALL, 'h3-early-data', 'firstByte'),
        at(profile, SMALL, 'h2-resumed', 'firstByte'),
      ),
      claim: { high: 0.95 },
      expected: {
        verdict: 'reproduced',
        because: 'one round trip instead of three, and nothing else takes time',
      },
      otherwise:
        'the published times include DNS and the server’s processing, which are negligible here, and few visits resume',
    },
    {
      id: `${profile}-first-byte-early-data-both`,
      statement: `${words}: with early data on both sides HTTP/3 still has the first byte earlier`,
      effect: pair(SMALL, 'h3-early-data', 'h2-early-data', 'firstByte'),
      claim: { high: 1 },
      expected: {
        verdict: 'reproduced',
        because: 'TCP has to connect before it can send early data',
      },
      otherwise: 'none was foreseen',
    },
  ];
});

/** Cloudflare, April 2020. */
export const cloudflare: Study = {
  name: 'cloudflare',
  title:
    'HTTP/3 and HTTP/2 of an edge, and the same controller under both (Cloudflare, April 2020)',
  source:
    'Cloudflare, April 2020: WebPageTest from places around the world, drafts of HTTP/3, HTTP/2 with BBR v1 and HTTP/3 with CUBIC. ' +
    'One figure per protocol and page. It names the same algorithm under both protocols as future work.',
  metric:
    'Pages to the end of the load event (`load`), the first byte of the document (`firstByte`). The published figures are assumed to be means.',
  published,
  conclusions: [
    'first byte 12.4 % earlier over HTTP/3, with 0-RTT',
    'a 15 KB page 3 % faster over HTTP/3, a 1 MB page 1 % slower',
    'a real blog 1 to 4 % slower over HTTP/3 in North America, alike elsewhere: explained by the two controllers',
  ],
  criteria: criteria.map((each) => withPublished(each, published)),
  differences: [
    'Links: the places, their losses and queues were not published; used here are WebPageTest’s cable link and an LTE link with few losses.',
    'Pages: one document without parts, as in the article; the real blog is not reproduced.',
    'Versions: RFC 9114 and QUIC version 1 instead of the article’s drafts; one server for both protocols.',
    'The kind of visit behind the published first bytes is unknown: here HTTP/3 uses 0-RTT and HTTP/2 a resumed session.',
  ],
};
