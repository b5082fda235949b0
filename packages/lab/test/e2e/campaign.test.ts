import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { parse } from 'node-html-parser';
import type { Campaign } from '../../src/campaign/campaign-file.js';
import { packageFolder } from '../places.js';
import { CLI, faultsOf, lab, reportOfQuietMachine, samplesOf, type Run } from './lab.js';

/** Runs real campaigns: needs `pronghorn`, Chromium, and permission to create namespaces. */

const plan = join(packageFolder, 'test/fixtures/plan.toml');

const folder = mkdtempSync(join(tmpdir(), 'lab-e2e-'));
// The browser's user needs access.
chmodSync(folder, 0o755);
after(() => {
  rmSync(folder, { recursive: true });
});

/**
 * Returns the scratch folders of campaigns; they are in this test's own folder, so other campaigns'
 * are not included.
 */
function scratchFolders(): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('pronghorn-lab-'));
}

const env = { ...process.env, TMPDIR: folder };
const PROTOCOLS: Readonly<Record<string, string>> = { h1: 'http/1.1', h2: 'h2', h3: 'h3' };
const ACCESS_LOG: Readonly<Record<string, string>> = { h1: 'HTTP/1.1', h2: 'HTTP/2', h3: 'HTTP/3' };

/** Writes the fixture's plan with changes, and with paths that are valid in this test's folder. */
function writePlan(name: string, change: (text: string) => string): string {
  const path = join(folder, `${name}.toml`);
  const text = change(readFileSync(plan, 'utf8'))
    .replace('mild.toml', join(packageFolder, 'test/fixtures/mild.toml'))
    .replace('spec = "page.toml"', `spec = "${join(packageFolder, 'test/fixtures/page.toml')}"`);
  writeFileSync(path, text);
  return path;
}

const armTable = (name: string, text: string): string => `[[arms]]\nname = "${name}"\n${text}\n`;

/**
 * The tests from here to the finished campaign use one campaign of six loads: it is interrupted,
 * killed, and finished.
 */
const out = join(folder, 'campaign');
const begun = ['run', plan, '--out', out];
const campaign = (): Campaign =>
  JSON.parse(readFileSync(join(out, 'campaign.json'), 'utf8')) as Campaign;

/** Runs the command until its progress shows so many loads, then sends it a signal. */
async function endAfter(
  loads: number,
  signal: NodeJS.Signals,
  args: readonly string[],
): Promise<Run> {
  const child = spawn(process.execPath, [CLI, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr, sent] = ['', '', false];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    // A second signal would end the process at once.
    if (!sent && stderr.includes(`[${loads}/6]`)) sent = child.kill(signal);
  });
  await new Promise((resolve) => child.once('close', resolve));
  assert.equal(child.signalCode ?? 'none', signal === 'SIGKILL' ? signal : 'none', stderr);
  return { status: child.exitCode, stdout, stderr };
}

test('interrupted campaign keeps its samples, reports them and leaves no process running', async () => {
  const { status, stdout, stderr } = await endAfter(2, 'SIGINT', begun);
  assert.equal(status, 130, stderr);
  assert.equal(samplesOf(out).length, 2, stderr);
  assert.match(
    stderr,
    /\[3\/6\] .* stopped, no sample\ninterrupted: the loads so far are in .*; --resume continues/,
  );
  assert.match(stdout, /The campaign was interrupted/);
  assert.ok(existsSync(join(out, 'report.html')));
  assert.equal(campaign().status, 'interrupted');
  assert.deepEqual(scratchFolders(), []);
  assert.deepEqual(processesNaming(folder), []);
});

test('killed campaign resumes where it was, and ends as if it had not been killed', async () => {
  const { stderr } = await endAfter(4, 'SIGKILL', [...begun, '--resume']);
  assert.match(stderr, /^\[3\/6\]/, stderr);
  // As if it had been killed in the middle of a line.
  writeFileSync(join(out, 'samples.jsonl'), '{"schema":2,"load":5,', { flag: 'a' });
  const numbers = (): number[] => samplesOf(out).map(({ load }) => load);
  assert.deepEqual(numbers(), [1, 2, 3, 4]);

  const last = lab([...begun, '--resume'], env);
  assert.match(last.stderr, /^\[5\/6\]/, last.stderr);
  assert.deepEqual(numbers(), [1, 2, 3, 4, 5, 6]);
  const { status, sittings } = campaign();
  assert.deepEqual([status, sittings.length], ['finished', 3]);
  // A machine that is too busy makes its loads invalid, so there is nothing to compare.
  assert.ok(last.status === 0 || last.status === 3, last.stderr);
  const quiet = reportOfQuietMachine(out);
  assert.equal(quiet.status, 0, quiet.stdout);
  assert.match(last.stdout, /mild +h3 /);
  assert.deepEqual(scratchFolders(), []);
  assert.deepEqual(processesNaming(folder), []);
});

test("campaign of one block loads the page once with each arm, over the arm's protocol only", () => {
  const samples = samplesOf(out);
  assert.deepEqual(
    samples.map(({ block }) => block),
    [0, 0, 0, 1, 1, 1],
  );
  for (const { arm, block, outcome, reason, browser, link, times, ...sample } of samples) {
    // Whether the link kept its deadlines depends on the machine, and the lab reports it; the rest
    // depends on the lab.
    assert.equal(outcome, 'completed', reason);
    assert.ok(browser?.navigation && link);
    const used = [browser.navigation, ...browser.resources].map((entry) => entry.nextHopProtocol);
    assert.deepEqual(used, Array(6).fill(PROTOCOLS[arm]));
    assert.deepEqual(
      browser.requests.map((request) => [request.protocol, request.status]),
      Array(6).fill([PROTOCOLS[arm], 200]),
    );
    const transports = link.flows
      .filter((flow) => flow.far_port === 443)
      .map((flow) => flow.protocol);
    assert.deepEqual([...new Set(transports)], [arm === 'h3' ? 'udp' : 'tcp']);
    // The server had a connection of each kind before, and the counts of server and link include
    // none of them.
    assert.deepEqual(
      sample.warmUps?.map(({ protocol, ok }) => [protocol, ok]),
      ['h1', 'h2', 'h3'].map((protocol) => [protocol, true]),
    );
    assert.deepEqual(sample.serverRequests, { [ACCESS_LOG[arm] ?? '']: 6 });
    const { tcpConnections = 0, quicConnections } = sample.serverCounters ?? {};
    assert.deepEqual([tcpConnections > 0, quicConnections], arm === 'h3' ? [false, 1] : [true, 0]);
    assert.equal(link.tcp_settings?.far.tcp_slow_start_after_idle, '0');
    assert.ok((sample.machine?.othersShare ?? -1) >= 0, JSON.stringify(sample.machine));
    // The load's end was marked while the browser was running, and the link's time covers the load.
    assert.equal(link.machine?.end_marked, true);
    assert.ok(link.machine.seconds < sample.wallSeconds, JSON.stringify(link.machine));
    assert.ok((link.time_zero_seconds ?? 0) > 0);
    // Only a rehearsal is slowed by a NetLog.
    const algorithm = arm === 'h3' && block === 0 ? 'CUBIC_BYTES' : undefined;
    assert.equal(browser.quicCongestion?.algorithm, algorithm);
    // Connecting, requesting and responding take at least three one-way delays of 5 ms.
    assert.ok((times.load ?? 0) > 0.015, String(times.load));
  }
  assert.deepEqual(samples.flatMap(faultsOf), []);
  const report = parse(readFileSync(join(out, 'report.html'), 'utf8'));
  const drawn = report.querySelectorAll('.violin .label').map((label) => label.textContent);
  assert.deepEqual(drawn, ['h1', 'h2', 'h3']);
});

test('finished campaign does not resume, and an unfinished one does not resume with another plan', () => {
  const finished = lab([...begun, '--resume'], env);
  assert.equal(finished.status, 73);
  assert.match(finished.stderr, /^error: the campaign in .* is finished; use another --out/);

  const path = join(out, 'campaign.json');
  writeFileSync(
    path,
    readFileSync(path, 'utf8').replace('"status": "finished"', '"status": "interrupted"'),
  );
  const other = writePlan('other', (text) => text.replace('blocks = 1', 'blocks = 2'));
  const changed = lab(['run', other, '--out', out, '--resume'], env);
  assert.equal(changed.status, 65);
  assert.match(
    changed.stderr,
    /^error: the campaign in .* cannot be resumed: the plan has changed; restore it, or start/,
  );
});

test('server that does not start is reported with its output, and nothing is written', () => {
  const command = `sh -c 'for i in 1 2 3; do echo bad line $i of the configuration; done; exit 3'`;
  const path = writePlan('failing', (text) =>
    text.replace(
      /\[\[arms\]\][^]*/,
      `${armTable('h3', 'protocol = "h3"\nserver = "x"')}[servers.x]\ncommand = "${command}"\n`,
    ),
  );
  const results = join(folder, 'failing');
  const { status, stderr } = lab(['run', path, '--out', results], env);
  assert.equal(status, 69, stderr);
  const [error, ...details] = stderr.trimEnd().split('\n');
  assert.match(
    error ?? '',
    /^error: the link of profile mild with the server x did not come up: .*\(exit status: 3\)/,
  );
  assert.deepEqual(
    details.slice(-3),
    [1, 2, 3].map((each) => `    bad line ${each} of the configuration`),
  );
  assert.equal(existsSync(results), false);
});

test('server that does not respond causes a timeout, kept and shown as an outcome', () => {
  const lost = join(folder, 'lost.toml');
  const direction = 'rate_mbit_per_second = 50\ndelay_ms = 5\nqueue_ms = 100\nloss_percent = 100\n';
  writeFileSync(
    lost,
    `name = "lost"\ndescription = "Nothing arrives."\n[up]\n${direction}[down]\n${direction}`,
  );
  const path = writePlan('lost-plan', (text) =>
    text
      .replace('mild.toml', lost)
      .replace('timeout_seconds = 30', 'timeout_seconds = 1')
      .replace(/\[\[arms\]\][^]*/, armTable('h3', 'protocol = "h3"')),
  );
  const results = join(folder, 'lost');
  const run = lab(['run', path, '--out', results], env);
  assert.equal(run.status, 3, run.stderr);
  const samples = samplesOf(results);
  assert.equal(samples.length, 2);
  for (const sample of samples) {
    const { outcome, times, traces } = sample;
    assert.equal(outcome, 'timeout');
    assert.deepEqual(faultsOf(sample), []);
    assert.equal(times.load, undefined);
    assert.ok(traces !== undefined && existsSync(join(results, traces, 'link.json.gz')));
  }
  const { stdout } = reportOfQuietMachine(results);
  assert.match(stdout, /did not complete: timeout: no load event in 1 s; 0 of 6 requests answered/);
});

test('each kind of visit behaves as documented', () => {
  const arms: Readonly<Record<string, string>> = {
    clear: 'protocol = "http"',
    'h2-early': 'protocol = "h2"\nvisit = "early-data"',
    'h3-early': 'protocol = "h3"\nvisit = "early-data"',
    'alt-svc-known':
      'protocol = "auto"\ndiscovery = "alt-svc"\nvisit = "resumed"\nagainst = "h2-early"',
  };
  const tables = Object.entries(arms).map(([name, text]) => armTable(name, text));
  // The browser connects some milliseconds before it has a request: on a short path the handshake
  // is done by then.
  const long = join(folder, 'long.toml');
  const mild = readFileSync(join(packageFolder, 'test/fixtures/mild.toml'), 'utf8');
  writeFileSync(long, mild.replaceAll(/delay_ms = \d+/g, 'delay_ms = 60'));
  // The browser accepts a chain of the usual size over each protocol, and a warm one has no data of
  // the server either.
  const path = writePlan('visits', (text) =>
    text
      .replace('mild.toml', long)
      .replace('seed =', 'browser = "warm"\ncertificate = "rsa-chain"\nseed =')
      .replace(/\[\[arms\]\][^]*/, tables.join('')),
  );
  const results = join(folder, 'visits');
  const run = lab(['run', path, '--out', results], env);
  const samples = samplesOf(results);
  assert.equal(samples.length, 8, run.stderr);
  for (const sample of samples) {
    const { arm, outcome, reason, browser, serverCounters: counters } = sample;
    assert.equal(outcome, 'completed', `${arm}: ${reason ?? ''}`);
    assert.deepEqual(faultsOf(sample), [], arm);
    assert.ok(browser && counters);
    const protocols = browser.requests.map(({ protocol }) => protocol);
    const early = arm.endsWith('early');
    if (!early) assert.equal(counters.earlyRequests, 0, arm);
    assert.equal(
      counters.tcpResumed + counters.quicResumed > 0,
      early || arm === 'alt-svc-known',
      arm,
    );
    if (arm === 'clear') assert.deepEqual([...new Set(protocols)], ['http/1.1']);
  }
  // On a busy machine a request may come so long after its connection that early data is pointless,
  // and QUIC may be so late that TCP, which starts after it, wins.
  const loadsOf = (name: string): typeof samples => samples.filter(({ arm }) => arm === name);
  for (const name of ['h2-early', 'h3-early']) {
    const requests = loadsOf(name).map(({ serverCounters }) => serverCounters?.earlyRequests ?? 0);
    assert.ok(Math.max(...requests) > 0, `${name}: ${requests.join()} early requests`);
  }
  // A browser that has visited before uses QUIC directly.
  const known = loadsOf('alt-svc-known').map(
    ({ browser }) => browser?.requests.map(({ protocol }) => protocol) ?? [],
  );
  assert.ok(
    known.some((protocols) => protocols.every((protocol) => protocol === 'h3')),
    JSON.stringify(known),
  );
});

/** Returns command lines of processes that name a path, except this one's. */
function processesNaming(path: string): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && Number(entry) !== process.pid)
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      } catch {
        return ''; // ended meanwhile
      }
    })
    .filter((commandLine) => commandLine.includes(path));
}
