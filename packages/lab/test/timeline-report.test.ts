import assert from 'node:assert/strict';
import test from 'node:test';
import { parse, type HTMLElement } from 'node-html-parser';
import { headOfLinePicture, worstStall } from '../src/report/hol.js';
import { timelineDrawing } from '../src/report/timeline-picture.js';
import { binned, percentAt, stepArea, thinned, ticks, type Point } from '../src/report/tracks.js';
import { labelsOf } from '../src/trace/labels.js';
import type { LoadTimeline } from '../src/trace/timeline.js';
import { recordedTimeline, without } from './traces.js';

const AXIS = { from: 0, to: 1_000 };

test('thinning keeps the minimum and the maximum of each segment', () => {
  const points = Array.from({ length: 10_000 }, (_, index): Point => ({
    at: index / 10,
    value: index % 100,
  }));
  const kept = thinned(points, AXIS);
  assert.ok(kept.length <= 800 && kept.length > 400);
  assert.equal(Math.max(...kept.map(({ value }) => value)), 99);
  assert.equal(Math.min(...kept.map(({ value }) => value)), 0);
  assert.deepEqual(
    kept.map(({ at }) => at),
    kept.map(({ at }) => at).sort((a, b) => a - b),
  );
});

test('sums over time segments lose nothing within the axis', () => {
  const items = [-5, 0, 500, 999.9, 1_000, 1_001];
  const bins = binned(
    items,
    (at) => at,
    AXIS,
    (those) => those.length,
  );
  assert.equal(bins.length, 400);
  assert.equal(
    bins.reduce((sum, { value }) => sum + value, 0),
    5,
  );
});

test('times outside an axis are placed at its ends', () => {
  assert.deepEqual(
    [-1, 0, 250, 1_000, 2_000].map((at) => percentAt(AXIS, at)),
    [0, 0, 25, 100, 100],
  );
});

test('overlapping lines are drawn once', () => {
  assert.equal(ticks([500, 500.1, 500.2, 900], AXIS), 'M500 0V100M900 0V100');
});

test('area holds each value until the next', () => {
  const area = stepArea(
    [
      { at: 0, value: 1 },
      { at: 500, value: 2 },
      { at: 1_000, value: 2 },
    ],
    AXIS,
    2,
  );
  assert.match(area, /^M0,51L500,51L500,2L1000,2/);
});

async function drawn(
  name: string,
  change: (timeline: LoadTimeline) => LoadTimeline = (same) => same,
): Promise<HTMLElement> {
  const timeline = change(await recordedTimeline(name));
  const { markup } = timelineDrawing(
    { load: 1, arm: 'arm', browser: timeline.browser },
    timeline,
    labelsOf(timeline),
  );
  return parse(markup);
}

function tracks(document: HTMLElement): string[] {
  return document.querySelectorAll('.row.tall b').map(({ text }) => text);
}

test('timeline has the tracks for which data exists', async () => {
  assert.deepEqual(tracks(await drawn('loss-h2')), [
    'packets down',
    'packets up',
    'queue down',
    'window',
    'round trip',
  ]);
  assert.deepEqual(tracks(await drawn('loss-h3')), [
    'packets down',
    'packets up',
    'queue down',
    'window',
  ]);
  const bare = await drawn('loss-h2', (timeline) => ({
    ...timeline,
    packets: [],
    flows: [],
    tcpInfo: [],
  }));
  assert.deepEqual(tracks(bare), []);
  assert.match(bare.text, /packets of this load were not recorded/);
});

test('lost packets and labels are drawn at their times', async () => {
  const document = await drawn('loss-h2');
  const lost = document.querySelector('.row.tall path.lost')?.getAttribute('d') ?? '';
  const { packets } = await recordedTimeline('loss-h2');
  const { length } = packets.filter(({ way, fate }) => way === 'down' && fate === 'lost');
  // Two of them reached the link within a thousandth of the axis.
  assert.equal(lost.match(/M/g)?.length, length - 1);
  const words = document.querySelector('.row.tall svg')?.getAttribute('aria-label') ?? '';
  assert.ok(words.includes(`, ${length} of `), words);
  const bars = document.querySelectorAll('i.span');
  assert.equal(bars.length, 6);
  assert.match(document.querySelector('ol.labels')?.text ?? '', /23 streams stalled for 84 ms/);
});

test('drawing of a load contains no markup from its URLs', async () => {
  const evil = 'https://bench.test/<script>alert(1)</script>';
  const document = await drawn('loss-h2', (timeline) => ({
    ...timeline,
    browser: {
      ...timeline.browser,
      resources: timeline.browser.resources.map((each) => ({ ...each, name: evil })),
    },
  }));
  assert.equal(document.querySelectorAll('script').length, 0);
});

test('worst stall has the largest product of streams and time', async () => {
  const timelines = [await recordedTimeline('loss-h2'), await recordedTimeline('loss-h3')];
  const h2 = worstStall(timelines, 'h2');
  const h3 = worstStall(timelines, 'h3');
  assert.equal(h2?.label.streams, 23);
  assert.equal(h3?.label.streams, 3);
  assert.equal(worstStall(timelines.slice(1), 'h2'), undefined);
  const withoutLog = timelines.map((timeline) => without(timeline, 'netLog'));
  assert.equal(worstStall(withoutLog, 'h2'), undefined, 'streams are drawn from a NetLog');
});

test('head-of-line picture shows its numbers as text', async () => {
  const timelines = [await recordedTimeline('loss-h2'), await recordedTimeline('loss-h3')];
  const stalls = (['h2', 'h3'] as const).map((protocol) => worstStall(timelines, protocol));
  const document = parse(headOfLinePicture(stalls.filter((each) => each !== undefined)).markup);
  const [h2, h3] = document.querySelectorAll('article');
  assert.match(
    h2?.text ?? '',
    /For 84 ms none of the 23 open streams received a byte, while 9\d KB/,
  );
  assert.match(
    h3?.text ?? '',
    /For 106 ms 3 streams had gaps, and [\d.]+ KB arrived but had to wait/,
  );
  assert.match(h3?.text ?? '', /[\d.]+ KB of \d+ other streams came through/);
  const held = h2?.querySelectorAll('path.held').map((path) => path.getAttribute('d')) ?? [];
  const delivered =
    h2?.querySelectorAll('path.delivered').map((path) => path.getAttribute('d')) ?? [];
  assert.ok(held.length > 10 && held.some((path, index) => path !== delivered[index]));
});
