import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'node:test';
import type { Campaign } from '../src/campaign/campaign-file.js';
import { withPartners } from '../src/compare/partners.js';
import { describeVerdict } from '../src/compare/comparison-text.js';
import {
  machineCpu,
  parseCpuCounters,
  readCpuCounters,
  type CpuCounters,
  type MachineCpu,
} from '../src/run/machine-cpu.js';
import type { Arm, Visit } from '../src/campaign/plan.js';
import { method } from '../src/report/sections.js';
import { kiwee } from '../src/reproduce/studies/kiwee.js';
import { collectResults, type Results } from '../src/report/results.js';
import type { Sample } from '../src/samples/sample.js';
import { appendSample, readSamples } from '../src/samples/samples-file.js';
import { MIN_SHARE_OF_ONE, MAX_OTHERS_SHARE, starvationFault } from '../src/campaign/starvation.js';
import { tableNotes } from '../src/report/results-table.js';
import { invalidReasons, wasAnsweredOver } from '../src/samples/validity.js';
import { withoutWarmUps } from '../src/run/warm-up.js';
import { draws, times } from './draws.js';
import { madeCampaign, madeSample } from './made-campaign.js';
import { recorded } from './recorded.js';

/**
 * Biases that favour one protocol, each planted in made or recorded loads: the lab has to be free
 * of them or report them.
 */

const arm = (name: string, protocol: Arm['protocol'], visit: Visit = 'first'): Arm => ({
  ...{ name, protocol, visit },
  congestion: 'cubic',
  server: 'pronghorn',
});

const VISITS = ['first', 'resumed', 'early-data'] as const;
const both = VISITS.flatMap((visit) => [
  arm(`h2-${visit}`, 'h2', visit),
  arm(`h3-${visit}`, 'h3', visit),
]);

/** Returns the results of loads whose times depend only on their visit, not on the protocol. */
async function resultsOf(
  arms: readonly Arm[],
  seconds: Readonly<Record<Visit, number>>,
): Promise<Results> {
  const random = draws(16);
  const campaign: Campaign = madeCampaign(kiwee, {
    arms: [...arms],
    baseline: 'h2-first',
    profiles: [{ name: 'lte', sha256: '', text: '' }],
    pages: [{ name: 'page', requests: 1 }],
  });
  const loads = times(20, (block) =>
    arms.map(({ name, visit }) => ({
      ...{ profile: 'lte', page: 'page', arm: name, block: block + 1 },
      seconds: seconds[visit] * random.logNormal(0.05),
    })),
  ).flat();
  async function* samples(): AsyncGenerator<Sample> {
    for (const [at, load] of loads.entries()) yield await Promise.resolve(madeSample(load, at + 1));
  }
  return collectResults(campaign, samples());
}

const loadVerdicts = ({ comparisons: { comparisons } }: Results): [string, string, string][] =>
  comparisons
    .filter(({ metric }) => metric === 'load')
    .map((one) => [
      one.arm,
      one.base,
      one.verdict.kind === 'none-detected' ? 'none' : describeVerdict(one),
    ]);

test('repeat visits that are faster over both protocols make neither protocol the faster one', async () => {
  // As measured: 291 ms for a first visit, and 210 ms with a resumed session.
  const seconds = { first: 0.291, resumed: 0.21, 'early-data': 0.18 };
  const found = await resultsOf(withPartners(both, 'h2-first', 'plan.toml'), seconds);
  assert.deepEqual(
    loadVerdicts(found),
    VISITS.map((visit) => [`h3-${visit}`, `h2-${visit}`, 'none']),
  );
  // With a single baseline, as in earlier versions, the same loads show a difference that is due to
  // the visit.
  const before = loadVerdicts(await resultsOf(both, seconds));
  assert.ok(
    before.some(([name, , verdict]) => name === 'h3-resumed' && verdict === 'h3-resumed is faster'),
  );
});

test('protocol that is faster in repeat visits is found among repeat visits', async () => {
  const arms = withPartners(both, 'h2-first', 'plan.toml');
  const seconds = { first: 0.291, resumed: 0.21, 'early-data': 0.18 };
  const slower = arms.map((each) =>
    each.name === 'h2-resumed' ? { ...each, visit: 'first' as const } : each,
  );
  const verdicts = loadVerdicts(await resultsOf(slower, seconds));
  assert.deepEqual(
    verdicts.find(([name]) => name === 'h3-resumed'),
    ['h3-resumed', 'h2-resumed', 'h3-resumed is faster'],
  );
});

/** Returns the rules that a recorded load breaks after a change. */
function reasonsOf(
  name: 'h2' | 'h3',
  change: Partial<Parameters<typeof invalidReasons>[0]>,
  own: Partial<Arm> = {},
): string[] {
  const {
    protocol,
    congestion,
    visit,
    server,
    browser,
    link,
    serverCounters: counters,
  } = recorded(name);
  return invalidReasons({
    arm: { name, protocol, congestion, visit, server, ...own },
    ...{ pageBytes: undefined, origin: undefined, browser, link, counters },
    ...change,
  });
}

function withSettings(near: string, far: string): Partial<Parameters<typeof invalidReasons>[0]> {
  const { link } = recorded('h2');
  const end = (value: string): Record<string, string> => ({ tcp_slow_start_after_idle: value });
  return { link: { ...link, tcp_settings: { near: end(near), far: end(far) } } };
}

test('load whose TCP restarts after idle against the setting is invalid, and so is the reverse', () => {
  const words = /^tcp_slow_start_after_idle was 1 at the client and 0 at the server, not 0$/;
  assert.match(reasonsOf('h2', withSettings('1', '0'))[0] ?? '', words);
  assert.deepEqual(reasonsOf('h2', withSettings('0', '0')), []);
  assert.deepEqual(reasonsOf('h2', withSettings('1', '1'), { slowStartAfterIdle: true }), []);
  assert.equal(reasonsOf('h2', withSettings('0', '0'), { slowStartAfterIdle: true }).length, 1);
});

test('server that did not answer before the load makes the load invalid over either protocol', () => {
  for (const name of ['h2', 'h3'] as const) {
    const warmUps = [
      { protocol: 'h2', ok: true },
      { protocol: 'h3', ok: false },
    ] as const;
    assert.deepEqual(reasonsOf(name, { warmUps }), [
      'the server was cold: it did not answer before the load over h3',
    ]);
    assert.deepEqual(reasonsOf(name, { warmUps: warmUps.slice(0, 1) }), []);
  }
});

test('report lists the servers that could not be warmed', async () => {
  const arms = [arm('h2-first', 'h2'), arm('h3-first', 'h3')];
  const campaign = madeCampaign(kiwee, {
    arms,
    baseline: 'h2-first',
    profiles: [{ name: 'lte', sha256: '', text: '' }],
    pages: [{ name: 'page', requests: 1 }],
  });
  const noted = async (answers: readonly boolean[]): Promise<string> => {
    async function* samples(): AsyncGenerator<Sample> {
      for (const [at, ok] of answers.entries()) {
        const name = arms[at % 2]?.name ?? '';
        const made = madeSample(
          { profile: 'lte', page: 'page', arm: name, block: 1, seconds: 1 },
          at + 1,
        );
        const warmUps = [{ protocol: 'h2', ok } as const, { protocol: 'h3', ok: false } as const];
        yield await Promise.resolve({ ...made, server: 'x', warmUps });
      }
    }
    return tableNotes(campaign, await collectResults(campaign, samples())).join('\n');
  };
  assert.match(
    await noted([false, false]),
    /^All arms of the server x ran cold: it answered no request before the load\./m,
  );
  assert.match(await noted([false, true, true]), /^1 of 3 loads of the server x ran cold: /m);
  assert.doesNotMatch(await noted([true, true]), /ran cold/);
});

test("protocols over which the server answered are derived from the browser's requests", () => {
  const { browser } = recorded('h3');
  assert.deepEqual([wasAnsweredOver('h3', browser), wasAnsweredOver('h2', browser)], [true, false]);
  const failed = {
    ...browser,
    requests: browser.requests.map((each) => ({ ...each, error: 'net::ERR_TIMED_OUT' })),
  };
  assert.equal(wasAnsweredOver('h3', failed), false);
});

test('connections before the load do not count towards the kind of visit', () => {
  const counters = {
    tcpConnections: 2,
    quicConnections: 2,
    tcpResumed: 1,
    quicResumed: 1,
    earlyRequests: 0,
    quicMigrations: 0,
  };
  const counted = withoutWarmUps(counters, [
    { protocol: 'h2', ok: true },
    { protocol: 'h3', ok: true },
  ]);
  assert.deepEqual(counted, { ...counters, tcpConnections: 1, quicConnections: 1 });
  // Every session was resumed, which is impossible in a first visit. If warm-ups were counted, this
  // would be missed.
  assert.deepEqual(reasonsOf('h3', { counters: counted }), [
    'every session was resumed in a first visit',
  ]);
  assert.deepEqual(reasonsOf('h3', { counters }), []);
});

test('report lists conditions of only one protocol: TCP parameters, certificate, processors and skipped arms', async () => {
  const campaign: Campaign = {
    ...madeCampaign(kiwee, {
      profiles: [{ name: 'lte', sha256: '', text: '' }],
      pages: [{ name: 'page', requests: 1 }],
    }),
    arms: [arm('h2-first', 'h2')],
    ...{
      browser: 'warm',
      certificate: 'rsa-chain',
      leftOut: [{ arm: 'h3-nginx', reason: 'nginx 1.22.1 has no HTTP/3' }],
    },
  };
  const settings = {
    tcp_slow_start_after_idle: '0',
    tcp_rmem: '4096 131072 6291456',
    tcp_ecn: '2',
  };
  async function* samples(): AsyncGenerator<Sample> {
    const made = madeSample(
      { profile: 'lte', page: 'page', arm: 'h2-first', block: 1, seconds: 1 },
      1,
    );
    const link = {
      ...recorded('h2').link,
      tcp_settings: { near: settings, far: { ...settings, tcp_ecn: '1' } },
    };
    yield await Promise.resolve({
      ...made,
      link,
      machine: { cores: 2, seconds: 2, idleShare: 0.3, stealShare: 0.02, othersShare: 0.12 },
    });
  }
  const { markup } = method(campaign, await collectResults(campaign, samples()));
  for (const words of [
    'tcp_slow_start_after_idle 0, tcp_rmem 4096 131072 6291456, tcp_ecn 2 or 1;',
    'warm: it had already shown a page that shares nothing',
    'an intermediate, RSA-2048, some 2.7 KB',
    'others used 12 % of them in the median load, at most 12 % (stolen: 2 %); a block in which they used more than 25 % and left fewer than 2 idle is invalid',
    'h3-nginx: nginx 1.22.1 has no HTTP/3',
  ]) {
    assert.ok(markup.includes(words), words);
  }
});

test('report warns if few think times were counted from the recording', async () => {
  const noted = async (
    thinkTimeCounts: Campaign['pages'][number]['thinkTimeCounts'],
  ): Promise<[string, string]> => {
    const campaign = madeCampaign(kiwee, {
      profiles: [{ name: 'lte', sha256: '', text: '' }],
      pages: [{ name: 'shop', requests: 9, thinkTimes: true, thinkTimeCounts }],
    });
    async function* samples(): AsyncGenerator<Sample> {
      yield* await Promise.resolve([]);
    }
    const results = await collectResults(campaign, samples());
    return [tableNotes(campaign, results).join('\n'), method(campaign, results).markup];
  };
  const [few, shown] = await noted({ counted: 2, estimated: 3, leftOut: 4, untold: 0 });
  assert.match(
    few,
    /^Think times: only 2 of 9 think times were counted; .*estimated \(3\) or left out \(4\)/m,
  );
  assert.ok(shown.includes('think times as recorded (2 counted, 3 estimated, 4 left out)'));
  const [enough] = await noted({ counted: 6, estimated: 1, leftOut: 2, untold: 0 });
  assert.doesNotMatch(enough, /[Tt]hink time/);
});

/** Returns counters of two processors after so many seconds, with shares of their total time. */
function counters(seconds: number, shares: { idle: number; steal: number }): CpuCounters {
  const ticks = 2 * 100 * seconds;
  const [idle, steal] = [ticks * shares.idle, ticks * shares.steal];
  const stat = `cpu  ${ticks - idle - steal} 0 0 ${idle} 0 0 0 ${steal} 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n`;
  const pressure = `some avg10=1.00 avg60=1.00 avg300=1.00 total=${seconds * 250_000}\nfull avg10=0 total=0\n`;
  const read = parseCpuCounters(stat, pressure, seconds);
  assert.ok(read);
  return read;
}

test('processor use of other processes excludes the load and includes stolen time', () => {
  const before = counters(0, { idle: 0, steal: 0 });
  const after = counters(2, { idle: 0.2, steal: 0.1 });
  const machine = machineCpu(before, after, 2.4);
  assert.ok(machine?.othersShare !== undefined);
  // Of 4 processor seconds, 0.8 were idle and 2.4 the load's own.
  assert.ok(Math.abs(machine.othersShare - 0.2) < 1e-9, String(machine.othersShare));
  const { cores, idleShare, stealShare, waitingShare } = machine;
  assert.deepEqual([cores, idleShare, stealShare, waitingShare], [2, 0.2, 0.1, 0.25]);
  assert.equal(machineCpu(before, after, undefined)?.othersShare, undefined);
  assert.equal(parseCpuCounters('nothing', '', 0), undefined);
});

const cpu = (more: Partial<MachineCpu>): MachineCpu => ({
  ...{ cores: 2, seconds: 1, idleShare: 0, stealShare: 0, othersShare: 0 },
  ...more,
});

test('starved machine makes the loads of all arms of a round invalid, whichever used more CPU', async () => {
  // Others take all that remains: a computing load leaves them less, but is starved just as much.
  const [quick, slow] = [{ othersShare: 0.45 }, { othersShare: 0.2, seconds: 1.4 }];
  const machines = [quick, slow, { othersShare: 0.1 }, { othersShare: 0.2, idleShare: 0.3 }].map(
    cpu,
  );
  const folder = mkdtempSync(join(tmpdir(), 'lab-starved-'));
  try {
    const path = join(folder, 'samples.jsonl');
    writeFileSync(path, '');
    machines.forEach((machine, at) => {
      const load = {
        profile: 'lte',
        page: 'page',
        arm: ['h2', 'h3'][at % 2] as string,
        block: 1 + Math.floor(at / 2),
      };
      appendSample(path, { ...madeSample({ ...load, seconds: 1 }, at + 1), machine });
    });
    const reasons: (readonly string[])[] = [];
    for await (const { valid, invalidReasons: why } of readSamples(path)) {
      assert.equal(valid, why.length === 0);
      reasons.push(why);
    }
    const words =
      'the machine was starved: others used 30 % of its processors during the loads of this block (0 % stolen)';
    assert.deepEqual(reasons, [[words], [words], [], []]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('machine with idle processors is not starved, however much of it other processes use', () => {
  assert.equal(starvationFault([cpu({ cores: 16, idleShare: 0.3, othersShare: 0.6 })]), undefined);
  // One foreign process on four processors.
  assert.equal(starvationFault([cpu({ cores: 4, idleShare: 0.55, othersShare: 0.26 })]), undefined);
  assert.match(
    starvationFault([cpu({ cores: 4, idleShare: 0.25, othersShare: 0.55 })]) ?? '',
    /others used 55 %/,
  );
  assert.equal(
    starvationFault([cpu({ othersShare: MAX_OTHERS_SHARE, idleShare: MAX_OTHERS_SHARE })]),
    undefined,
  );
  assert.equal(starvationFault([undefined]), undefined);
});

test('one starved load makes a round of many arms invalid', () => {
  const quiet = cpu({ idleShare: 0.4, othersShare: 0.02 });
  const starved = cpu({ idleShare: 0.1, othersShare: 0.4 });
  assert.equal(
    starvationFault([...Array.from({ length: 9 }, () => quiet), starved]),
    'the machine was starved: in a load of this block others used 80 % of the processor time that the load left',
  );
  // A load that uses nearly all of the processors leaves little for others or for idling.
  assert.equal(
    starvationFault([quiet, cpu({ idleShare: 0.03, othersShare: MIN_SHARE_OF_ONE })]),
    undefined,
  );
  assert.equal(starvationFault([quiet, cpu({ idleShare: 0.2, othersShare: 0.2 })]), undefined);
});

test('CPU quota that throttles processes starves a round, with either cgroup version', () => {
  const folder = mkdtempSync(join(tmpdir(), 'lab-quota-'));
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  const after = (
    membership: string,
    path: string,
    stat: (seconds: number) => string,
  ): MachineCpu | undefined => {
    write('proc/self/cgroup', membership);
    const [before, then] = [1, 1.5].map((seconds, at) => {
      write('proc/stat', `cpu  ${100 * at} 0 0 ${300 * at} 0 0 0 0\ncpu0 1\n`);
      write(path, stat(seconds));
      return readCpuCounters(join(folder, 'proc'), join(folder, 'cgroup'));
    });
    assert.ok(before && then);
    return machineCpu({ ...before, atSeconds: 0 }, { ...then, atSeconds: 4 }, 0.9);
  };
  try {
    // The parent group has the quota.
    const unified = after(
      '0::/pod/one\n',
      'cgroup/pod/cpu.stat',
      (seconds) => `nr_throttled 3\nthrottled_usec ${seconds * 1e6}\n`,
    );
    assert.equal(unified?.throttledShare, 0.125);
    const words =
      "the machine was starved: a quota stopped processes for 13 % of the time of these arms' loads (cpu.stat)";
    assert.equal(starvationFault([unified]), words);
    rmSync(join(folder, 'cgroup'), { recursive: true });
    const first = after(
      '4:cpu,cpuacct:/\n0::/\n',
      'cgroup/cpu,cpuacct/cpu.stat',
      (seconds) => `throttled_time ${seconds * 1e9}\n`,
    );
    assert.equal(first?.throttledShare, 0.125);
    rmSync(join(folder, 'cgroup'), { recursive: true });
    assert.equal(after('0::/\n', 'other', String)?.throttledShare, undefined);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
