import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { parse } from 'node-html-parser';
import type { Campaign } from '../../src/campaign-file.js';
import type { Sample } from '../../src/sample.js';
import { packageFolder } from '../places.js';

/** Runs real campaigns: needs `pronghorn`, Chromium, and the right to make namespaces. */

const CLI = join(packageFolder, 'dist/cli.js');
const plan = join(packageFolder, 'test/fixtures/plan.toml');

const folder = mkdtempSync(join(tmpdir(), 'lab-e2e-'));
after(() => {
  rmSync(folder, { recursive: true });
});

function samplesOf(out: string, lines?: 'whole lines only'): Sample[] {
  const text = readFileSync(join(out, 'samples.jsonl'), 'utf8');
  const whole = lines === undefined ? text : text.slice(0, text.lastIndexOf('\n') + 1);
  const each = whole.split('\n').filter((line) => line !== '');
  return each.map((line) => JSON.parse(line) as Sample);
}

/** Scratch folders of campaigns; they are in this test's own folder, so that others' do not count. */
function scratchFolders(): string[] {
  return readdirSync(folder).filter((name) => name.startsWith('pronghorn-lab-'));
}

const env = { ...process.env, TMPDIR: folder };
const PROTOCOLS: Readonly<Record<string, string>> = { h1: 'http/1.1', h2: 'h2', h3: 'h3' };

test("campaign of one block loads the page once with each arm, over the arm's protocol only", () => {
  const out = join(folder, 'campaign');
  const run = spawnSync(process.execPath, [CLI, 'run', plan, '--out', out], {
    encoding: 'utf8',
    env,
    timeout: 180_000,
  });
  const samples = samplesOf(out);
  assert.deepEqual(
    samples.map(({ block }) => block),
    [0, 0, 0, 1, 1, 1],
    run.stderr,
  );
  for (const { arm, block, outcome, reason, browser, link, times } of samples) {
    // Whether the link kept its deadlines is up to the machine, and the lab's to say; all else is up to us.
    assert.equal(outcome, 'completed', reason);
    assert.ok(browser?.navigation && link);
    const used = [browser.navigation, ...browser.resources].map((entry) => entry.nextHopProtocol);
    assert.deepEqual(used, Array(6).fill(PROTOCOLS[arm]));
    assert.deepEqual(
      browser.requests.map((request) => [request.protocol, request.status]),
      Array(6).fill([PROTOCOLS[arm], 200]),
    );
    const transports = link.flows.filter((flow) => flow.far_port === 443).map((flow) => flow.protocol);
    assert.deepEqual([...new Set(transports)], [arm === 'h3' ? 'udp' : 'tcp']);
    // Only a rehearsal is slowed by a NetLog.
    const algorithm = arm === 'h3' && block === 0 ? 'CUBIC_BYTES' : undefined;
    assert.equal(browser.quicCongestion?.algorithm, algorithm);
    // Three one-way delays of 5 ms are the least that connecting, asking and answering take.
    assert.ok((times.load ?? 0) > 0.015, String(times.load));
  }
  const reasons = samples.flatMap(({ invalidReasons }) => invalidReasons);
  assert.deepEqual(
    reasons.filter((reason) => !reason.startsWith('the link missed its deadlines')),
    [],
  );
  assert.equal(run.status, samples.every(({ block, valid }) => valid || block === 0) ? 0 : 3, run.stderr);
  assert.match(run.stdout, /mild +h3 /);
  const report = parse(readFileSync(join(out, 'report.html'), 'utf8'));
  assert.deepEqual(
    report.querySelectorAll('.violin .label').map((label) => label.textContent),
    ['h1', 'h2', 'h3'],
  );
  assert.deepEqual(scratchFolders(), []);
});

test('server that does not answer makes a timeout, kept and shown as an outcome', () => {
  const out = join(folder, 'lost');
  const lost = join(folder, 'lost.toml');
  const direction = 'rate_mbit_per_second = 50\ndelay_ms = 5\nqueue_ms = 100\nloss_percent = 100\n';
  writeFileSync(lost, `name = "lost"\ndescription = "Nothing arrives."\n[up]\n${direction}[down]\n${direction}`);
  const text = readFileSync(plan, 'utf8')
    .replace('mild.toml', lost)
    .replace('timeout_seconds = 30', 'timeout_seconds = 2')
    .replace('spec = "page.toml"', `spec = "${join(packageFolder, 'test/fixtures/page.toml')}"`);
  const path = join(folder, 'lost-plan.toml');
  writeFileSync(path, text);
  const run = spawnSync(process.execPath, [CLI, 'run', path, '--out', out], {
    encoding: 'utf8',
    env,
    timeout: 180_000,
  });
  assert.equal(run.status, 3, run.stderr);
  const samples = samplesOf(out);
  assert.equal(samples.length, 6);
  for (const { outcome, times, traces } of samples) {
    assert.equal(outcome, 'timeout');
    assert.equal(times.load, undefined);
    assert.ok(traces !== undefined && existsSync(join(out, traces, 'link.json.gz')));
  }
  assert.match(run.stdout, /did not complete: timeout: no load event in 2 s; 0 of 6 requests answered/);
});

test('each kind of visit is what it says it is', () => {
  const out = join(folder, 'visits');
  const path = join(folder, 'visits.toml');
  const arms: Readonly<Record<string, string>> = {
    clear: 'protocol = "http"',
    'h2-resumed': 'protocol = "h2"\nvisit = "resumed"',
    'h2-early': 'protocol = "h2"\nvisit = "early-data"',
    'h3-early': 'protocol = "h3"\nvisit = "early-data"',
    'alt-svc': 'protocol = "auto"\ndiscovery = "alt-svc"',
    'https-record': 'protocol = "auto"\ndiscovery = "https-record"',
    'alt-svc-known': 'protocol = "auto"\ndiscovery = "alt-svc"\nvisit = "resumed"',
  };
  const tables = Object.entries(arms).map(([name, text]) => `[[arms]]\nname = "${name}"\n${text}\n`);
  // The browser connects some milliseconds before it has a request: on a short path the handshake is done by then.
  const long = join(folder, 'long.toml');
  const mild = readFileSync(join(packageFolder, 'test/fixtures/mild.toml'), 'utf8');
  writeFileSync(long, mild.replaceAll(/delay_ms = \d+/g, 'delay_ms = 60'));
  writeFileSync(
    path,
    readFileSync(plan, 'utf8')
      .replace('mild.toml', long)
      .replace('spec = "page.toml"', `spec = "${join(packageFolder, 'test/fixtures/page.toml')}"`)
      .replace(/\[\[arms\]\][^]*/, tables.join('')),
  );
  const run = spawnSync(process.execPath, [CLI, 'run', path, '--out', out], {
    encoding: 'utf8',
    env,
    timeout: 180_000,
  });
  const samples = samplesOf(out);
  assert.equal(samples.length, 14, run.stderr);
  for (const { arm, outcome, reason, browser, serverCounters: counters, invalidReasons } of samples) {
    assert.equal(outcome, 'completed', `${arm}: ${reason ?? ''}`);
    assert.deepEqual(
      invalidReasons.filter((each) => !each.startsWith('the link missed its deadlines')),
      [],
      arm,
    );
    assert.ok(browser && counters);
    const protocols = browser.requests.map(({ protocol }) => protocol);
    const early = arm.endsWith('early');
    if (!early) assert.equal(counters.earlyRequests, 0, arm);
    assert.equal(counters.tcpResumed + counters.quicResumed > 0, early || /resumed|known/.test(arm), arm);
    if (arm === 'clear') assert.deepEqual([...new Set(protocols)], ['http/1.1']);
    // Who does not know yet asks for the document over TCP; who was there before goes straight to QUIC.
    if (arm === 'alt-svc') assert.equal(protocols[0], 'h2');
    if (arm === 'https-record') {
      assert.ok((browser.httpsRecordQueries ?? 0) > 0);
      assert.match(browser.requests[0]?.alternateProtocolUsage ?? '', /^dnsAlpnH3Job|^mainJob/);
    }
    if (arm === 'alt-svc-known') assert.deepEqual([...new Set(protocols)], ['h3']);
  }
  for (const name of ['h2-early', 'h3-early']) {
    // On a busy machine a request may come so long after its connection that there is nothing to be early for.
    const requests = samples
      .filter(({ arm }) => arm === name)
      .map((sample) => sample.serverCounters?.earlyRequests ?? 0);
    assert.ok(Math.max(...requests) > 0, `${name}: ${requests.join()} early requests`);
  }
});

test('killed campaign goes on where it was, and ends as if it had not been killed', async () => {
  const out = join(folder, 'killed');
  const args = ['run', plan, '--out', out];
  const child = spawn(process.execPath, [CLI, ...args], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr.on('data', (part: Buffer) => {
    stderr += part.toString();
    if (stderr.includes('[4/6]')) child.kill('SIGKILL');
  });
  await new Promise((resolve) => child.once('close', resolve));
  assert.equal(child.signalCode, 'SIGKILL', stderr);
  // As if it had been in the middle of a line.
  writeFileSync(join(out, 'samples.jsonl'), '{"schema":2,"load":5,', { flag: 'a' });
  const before = samplesOf(out, 'whole lines only').map(({ load }) => load);
  assert.deepEqual(before, [1, 2, 3, 4]);

  const again = spawnSync(process.execPath, [CLI, ...args, '--resume'], { encoding: 'utf8', env, timeout: 180_000 });
  assert.match(again.stderr, /^\[5\/6\]/, again.stderr);
  assert.deepEqual(
    samplesOf(out).map(({ load }) => load),
    [1, 2, 3, 4, 5, 6],
  );
  const campaign = JSON.parse(readFileSync(join(out, 'campaign.json'), 'utf8')) as Campaign;
  assert.equal(campaign.status, 'finished');
  assert.equal(campaign.sittings.length, 2);
  assert.deepEqual(scratchFolders(), []);
  assert.deepEqual(processesNaming(folder), []);

  const third = spawnSync(process.execPath, [CLI, ...args, '--resume'], { encoding: 'utf8', env });
  assert.equal(third.status, 73);
  assert.match(third.stderr, /^error: the campaign in .* is finished; name another --out/);
});

test('campaign does not go on with another plan', () => {
  const out = join(folder, 'campaign');
  const path = join(out, 'campaign.json');
  writeFileSync(path, readFileSync(path, 'utf8').replace('"status": "finished"', '"status": "interrupted"'));
  const other = join(folder, 'other.toml');
  writeFileSync(
    other,
    readFileSync(plan, 'utf8')
      .replace('blocks = 1', 'blocks = 2')
      .replace('mild.toml', join(packageFolder, 'test/fixtures/mild.toml'))
      .replace('spec = "page.toml"', `spec = "${join(packageFolder, 'test/fixtures/page.toml')}"`),
  );
  const run = spawnSync(process.execPath, [CLI, 'run', other, '--out', out, '--resume'], { encoding: 'utf8', env });
  assert.equal(run.status, 65);
  assert.match(run.stderr, /^error: the campaign in .* cannot go on: the plan has changed; put it back, or start/);
});

test('interrupted campaign keeps its samples, reports them and leaves nothing running', async () => {
  const out = join(folder, 'interrupted');
  const path = join(folder, 'long-plan.toml');
  writeFileSync(
    path,
    readFileSync(plan, 'utf8')
      .replace('blocks = 1', 'blocks = 500')
      .replace('mild.toml', join(packageFolder, 'test/fixtures/mild.toml'))
      .replace('spec = "page.toml"', `spec = "${join(packageFolder, 'test/fixtures/page.toml')}"`),
  );
  const child = spawn(process.execPath, [CLI, 'run', path, '--out', out], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const { stdout, stderr } = await interruptAfterTwoLoads(child);
  assert.equal(child.exitCode, 130, stderr);
  const samples = samplesOf(out);
  assert.equal(samples.length, 2, stderr);
  assert.match(
    stderr,
    /\[ {3}3\/1503\] .* stopped, no sample\ninterrupted: the loads until then are in .*; --resume goes on/,
  );
  assert.match(stdout, /The campaign was interrupted/);
  assert.ok(existsSync(join(out, 'report.html')));
  const campaign = JSON.parse(readFileSync(join(out, 'campaign.json'), 'utf8')) as { status: string };
  assert.equal(campaign.status, 'interrupted');
  assert.deepEqual(scratchFolders(), []);
  assert.deepEqual(processesNaming(folder), []);
});

/** Sends SIGINT when the progress shows two loads, and waits for the end. */
async function interruptAfterTwoLoads(child: ChildProcess): Promise<{ stdout: string; stderr: string }> {
  let stdout = '';
  let stderr = '';
  let sent = false;
  child.stdout?.on('data', (part: Buffer) => (stdout += part.toString()));
  child.stderr?.on('data', (part: Buffer) => {
    stderr += part.toString();
    if (!sent && stderr.includes('[   2/1503]')) sent = child.kill('SIGINT');
  });
  await new Promise((resolve) => child.once('close', resolve));
  return { stdout, stderr };
}

/** Command lines of processes that name a path, this one's own apart. */
function processesNaming(path: string): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && Number(entry) !== process.pid)
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      } catch {
        return ''; // gone since
      }
    })
    .filter((commandLine) => commandLine.includes(path));
}
