import assert from 'node:assert/strict';
import test from 'node:test';
import { parse } from 'node-html-parser';
import {
  boundOf,
  useMarkdown,
  useOf,
  usePerCell,
  useSection,
  type Bound,
} from '../src/report/bound.js';
import type { BrowserCpu, Sample } from '../src/samples/sample.js';
import { recorded, type Mutable } from './recorded.js';

interface Made {
  readonly seconds?: number;
  readonly server?: number;
  readonly browser?: Partial<BrowserCpu> | undefined;
  /** Bytes downstream over 8 Mbit/s, which is a million bytes per second. */
  readonly bytes?: number;
  readonly dropped?: number;
  readonly visit?: Sample['visit'];
}

/** Returns a load of one second with almost no computing, changed as a test needs it. */
function made({
  seconds = 1,
  server = 0.01,
  browser,
  bytes = 0,
  dropped = 0,
  visit = 'first',
}: Made): Sample {
  const sample = structuredClone(recorded('h3')) as Mutable<Sample>;
  sample.times = { load: seconds };
  sample.visit = visit;
  sample.cpuSeconds = {
    server,
    link: 0.02,
    browser: { network: 0.1, renderer: 0.1, gpu: 0, other: 0.1, ...browser },
  };
  assert.ok(sample.link);
  const { down } = sample.link;
  down.asked.rate_mbit_per_second = 8;
  down.bytes_in = bytes + dropped;
  down.bytes_queue_dropped = dropped;
  return sample;
}

const bound = (change: Made, cpus = 8): Bound => boundOf(useOf(made(change), cpus));

test('a load is bound by its busiest resource', () => {
  assert.equal(bound({}), 'network');
  assert.equal(bound({ browser: { renderer: 0.9 } }), 'cpu');
  assert.equal(bound({ server: 0.9 }), 'cpu');
  assert.equal(bound({ browser: { renderer: 0.6 } }), 'mixed');
  assert.equal(bound({ browser: { renderer: 0.6 }, bytes: 950_000 }), 'network');
  assert.equal(bound({ browser: { renderer: 0.9 }, bytes: 950_000 }), 'mixed');
  // No single process is busy, but all processors are.
  assert.equal(
    bound({ browser: { network: 0.4, renderer: 0.45, other: 0.45 }, server: 0.45 }, 2),
    'cpu',
  );
  // Bytes that the queue dropped did not use the rate.
  assert.equal(bound({ browser: { renderer: 0.6 }, bytes: 500_000, dropped: 450_000 }), 'mixed');
});

test('a second visit gets half of what server and link did for both visits', () => {
  const use = useOf(made({ visit: 'resumed', server: 0.4, bytes: 1_000_000 }), 2);
  assert.equal(use?.server, 0.2);
  assert.equal(use.linkShare, 0.5);
});

test('without an end or processor times no bound is claimed', () => {
  const bare = { ...made({}), cpuSeconds: undefined, browser: undefined } as unknown as Sample;
  assert.equal(boundOf(useOf(bare, 2)), 'unknown');
  assert.equal(useOf({ ...made({}), times: {} }, 2), undefined);
});

test('a cell shows shares of loads and medians', async () => {
  const samples = [
    made({}),
    made({ server: 0.03 }),
    made({ server: 0.05 }),
    made({ browser: { renderer: 0.95 } }),
  ];
  const invalid = { ...made({ server: 0.99 }), valid: false };
  const rehearsal = { ...made({ server: 0.99 }), block: 0 };
  async function* stream(): AsyncGenerator<Sample> {
    yield* await Promise.resolve([...samples, invalid, rehearsal]);
  }
  const cells = await usePerCell(stream(), 8);
  assert.equal(cells.length, 1);
  assert.deepEqual(cells[0]?.bounds, { network: 3, cpu: 1, mixed: 0, unknown: 0 });
  assert.equal(cells[0].cpuMs.server, 20);
  const text = useMarkdown(cells);
  assert.match(text, /network 75 %, cpu 25 % +\| +20 \| +300 \| +20 \| +10 % \| +0 % \| +4 \|/);
  assert.match(parse(useSection(cells).markup).textContent, /network 75 %, cpu 25 %/);
});
