import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { readCampaign } from '../../src/campaign/campaign-file.js';
import type { ArmComparison } from '../../src/compare/compare-campaign.js';
import { generatePage } from '../../src/page/generate.js';
import { readPageSpec } from '../../src/page/spec.js';
import type { Sample } from '../../src/samples/sample.js';
import type { Label, LabelKind } from '../../src/trace/label.js';
import { packageFolder } from '../places.js';
import { faultsOf, lab, samplesOf } from './lab.js';

/**
 * The lab has to find known faults. Each campaign has one fault planted by a server or a link, and
 * an arm beside it without the fault.
 */

const root = join(packageFolder, '../..');
/** A third-party server with selectable faults (tests/clients/quic-go/planted). */
const PLANTED = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'test-clients/planted');

const folder = mkdtempSync(join(tmpdir(), 'lab-planted-'));
after(() => {
  rmSync(folder, { recursive: true });
});

interface Found {
  readonly samples: readonly Sample[];
  readonly comparisons: readonly ArmComparison[];
}

/** Runs a campaign with this plan after its name, and returns what it wrote. */
function campaign(name: string, plan: string): Found {
  const path = join(folder, `${name}.toml`);
  const out = join(folder, name);
  writeFileSync(path, `name = "${name}"\nseed = 3\ntimeout_seconds = 30\n${plan}`);
  const run = lab(['run', path, '--out', out]);
  const samples = samplesOf(out);
  assert.ok(
    samples.every(({ outcome }) => outcome === 'completed'),
    run.stderr,
  );
  const { comparisons } = JSON.parse(readFileSync(join(out, 'comparisons.json'), 'utf8')) as Found;
  return { samples, comparisons };
}

/** Returns the labels of one kind in the loads of an arm, one list per load. */
function labelsOf({ samples }: Found, arm: string, kind: LabelKind): Label[][] {
  const own = samples.filter((sample) => sample.arm === arm);
  return own.map(({ labels = [] }) => labels.filter((label) => label.kind === kind));
}

function assertEach(loads: readonly (readonly Label[])[]): void {
  assert.ok(loads.length > 0 && loads.every((labels) => labels.length > 0), JSON.stringify(loads));
}

/** A busy machine may slow any server occasionally; a planted fault is in each load. */
function assertNotEach(loads: readonly (readonly Label[])[]): void {
  const having = loads.filter((labels) => labels.length > 0).length;
  assert.ok(having <= loads.length / 2, `${having} of ${loads.length} loads`);
}

function profile(name: string, more = ''): string {
  const direction = 'rate_mbit_per_second = 50\ndelay_ms = 40\nqueue_ms = 200\n';
  const path = join(folder, `${name}.toml`);
  writeFileSync(path, `name = "${name}"\n[up]\n${direction}${more}[down]\n${direction}`);
  return path;
}

const SMALL = `[page]\nspec = "${join(packageFolder, 'test/fixtures/page.toml')}"\n`;
const arm = (name: string, text: string): string => `[[arms]]\nname = "${name}"\n${text}\n`;

test('half a second added by a server over HTTP/2 only is found, measured and attributed to the server', () => {
  const server = `server = "planted"`;
  const found = campaign(
    'slow',
    `blocks = 7\nprofiles = ["${profile('slow-link')}"]\n${SMALL}${arm('h2', `protocol = "h2"\n${server}`)}${arm('h3', `protocol = "h3"\n${server}`)}` +
      `[servers.planted]\ncommand = "${PLANTED} -root {page} -listen {address}:{port} -cert {cert} -key {key} -delay-h2 500ms"\n`,
  );
  const blamed = labelsOf(found, 'h2', 'slow-server');
  assertEach(blamed);
  // A machine may make the server slower than configured, but never faster.
  const waits = blamed.map((labels) => Math.max(...labels.map(({ seconds = 0 }) => seconds)));
  assert.ok(Math.min(...waits) > 0.495, waits.join());
  assertNotEach(labelsOf(found, 'h3', 'slow-server'));
  // A busy machine may make loads invalid, and thereby all pairs; the planted fault is in their
  // times even so.
  const byArm = (name: string): Map<number, number> =>
    new Map(
      found.samples.flatMap(({ arm: own, block, times }) =>
        own === name && times.firstByte !== undefined ? [[block, times.firstByte] as const] : [],
      ),
    );
  const [h2, h3] = [byArm('h2'), byArm('h3')];
  const differences = [...h2]
    .map(([block, seconds]) => (h3.get(block) ?? NaN) - seconds)
    .sort((one, other) => one - other);
  const middle = differences[Math.floor(differences.length / 2)] ?? NaN;
  assert.ok(middle < -0.3, differences.join());
  const firstByte = found.comparisons.find(({ metric }) => metric === 'firstByte');
  // Six pairs that all agree are enough for the test.
  if (firstByte !== undefined && firstByte.blocks > 0)
    assert.ok(firstByte.shift.value < -0.3, String(firstByte.shift.value));
  if (firstByte !== undefined && firstByte.blocks >= 6)
    assert.ok(firstByte.wilcoxon.p < 0.05, String(firstByte.wilcoxon.p));
});

test('window of 64 KiB is recognised from the packets', () => {
  const page = `[page]\nspec = "${join(packageFolder, 'pages/kakhki-1x1m.toml')}"\n`;
  const found = campaign(
    'window',
    `blocks = 1\nprofiles = ["${profile('window-link')}"]\n${page}${arm('whole', 'protocol = "h3"')}${arm('small', 'protocol = "h3"\nserver = "small"')}` +
      `[servers.small]\nargs = ["--limit", "send_window_bytes=64KiB"]\n`,
  );
  assertEach(labelsOf(found, 'small', 'flow-control-stall'));
  assertNotEach(labelsOf(found, 'whole', 'flow-control-stall'));
});

/**
 * Writes two pictures with a second of nothing in between, in which the page's script delays the
 * load event.
 */
function pauseSite(): string {
  const site = join(folder, 'pause-site');
  mkdirSync(site);
  writeFileSync(
    join(site, 'index.html'),
    `<!doctype html><title>pause</title><link rel="icon" href="data:,"><body><script>
const picture = (name) => Object.assign(new Image(), { src: name });
const first = picture('first.png');
first.onload = () => {
  for (const until = performance.now() + 1000; performance.now() < until; );
  document.body.append(picture('second.png'));
};
document.body.append(first);
</script>`,
  );
  const { files } = generatePage(readPageSpec(join(packageFolder, 'pages/kakhki-1x1m.toml')).value);
  const picture = files.find(({ kind }) => kind === 'image');
  assert.ok(picture);
  for (const name of ['first.png', 'second.png']) writeFileSync(join(site, name), picture.body);
  return site;
}

/**
 * Returns the server's congestion window before the longest pause of a load, and the smallest one
 * after it, in packets.
 */
function windowsAroundPause(
  out: string,
  { traces = '' }: Sample,
): { before: number; least: number } {
  const [head = '', ...lines] = gunzipSync(readFileSync(join(out, traces, 'tcp-info.csv.gz')))
    .toString()
    .trim()
    .split('\n');
  const at = (name: string): number => head.split(',').indexOf(name);
  const all = lines.map((line) => line.split(',')).filter((row) => row[at('end')] === 'far');
  const bytesOf = (row: readonly string[]): number => Number(row[at('bytes_sent')]);
  // Browsers open a second connection and may not use it.
  const most = all.reduce((so, row) => (bytesOf(row) > bytesOf(so) ? row : so));
  const rows = all.filter((row) => row[at('near_port')] === most[at('near_port')]);
  // Where the sent bytes stayed the same for longest; what follows the last byte is not a pause.
  const moved = rows.flatMap((row, at) =>
    at === 0 || bytesOf(row) !== bytesOf(rows[at - 1] ?? row) ? [at] : [],
  );
  const timeOf = (index: number): number => Number(rows[index]?.[at('time_ns')]);
  const [resumed = 0] = moved.slice(1).sort((one, other) => pauseBefore(other) - pauseBefore(one));
  function pauseBefore(index: number): number {
    return timeOf(index) - timeOf(moved[moved.indexOf(index) - 1] ?? index);
  }
  const windows = rows.map((row) => Number(row[at('cwnd_packets')]));
  return { before: windows[resumed - 1] ?? 0, least: Math.min(...windows.slice(resumed)) };
}

test('TCP keeps its window over a pause as QUIC does, unless the plan says otherwise', () => {
  const found = campaign(
    'pause',
    `blocks = 1\nprofiles = ["${profile('pause-link')}"]\n[page]\nfolder = "${pauseSite()}"\nrequests = 3\n` +
      `${arm('kept', 'protocol = "h2"')}${arm('restarted', 'protocol = "h2"\ntcp_slow_start_after_idle = true')}`,
  );
  for (const sample of found.samples) {
    assert.deepEqual(faultsOf(sample), []);
    const { before, least } = windowsAroundPause(join(folder, 'pause'), sample);
    // More than the initial window; otherwise there would be nothing to lose.
    assert.ok(before > 40, String(before));
    assert.ok(
      sample.arm === 'kept' ? least > 0.6 * before : least < 0.5 * before,
      `${sample.arm}: ${before}, ${least}`,
    );
  }
});

test('other servers load the page over their protocols, and are skipped where they are not installed', () => {
  const reference = (name: string): string =>
    `[servers.${name}]\nreference = "${name}"\noptional = true\n`;
  const names = ['nghttpd', 'nginx', 'caddy', 'h2o'];
  const arms = names.map((name) => arm(`h2-${name}`, `protocol = "h2"\nserver = "${name}"`));
  const more = ['caddy', 'h2o'].map((name) =>
    arm(`h3-${name}`, `protocol = "h3"\nserver = "${name}"\nagainst = "h2-${name}"`),
  );
  const found = campaign(
    'reference',
    `blocks = 1\nprofiles = ["${profile('reference-link')}"]\n${SMALL}${[...arms, ...more, ...names.map(reference)].join('')}`,
  );
  // The first two come with the tests' packages; Caddy and h2o have to be built separately.
  const loaded = new Set(found.samples.map(({ arm: name }) => name));
  const left = readCampaign(join(folder, 'reference')).leftOut ?? [];
  assert.ok(loaded.has('h2-nghttpd') && loaded.has('h2-nginx'), [...loaded].join());
  assert.equal(loaded.size + left.length, 6);
  for (const { arm: name, reason } of left)
    assert.match(`${name}: ${reason}`, /^h[23]-(caddy|h2o): .*(cannot find|no HTTP\/3)/);
  for (const sample of found.samples) {
    assert.deepEqual(faultsOf(sample), [], sample.arm);
    assert.ok(
      sample.warmUps?.every(({ ok }) => ok),
      sample.arm,
    );
  }
});

test('server that announces HTTP/3 without supporting it causes a load that falls back to TCP', () => {
  const auto = 'protocol = "auto"\ndiscovery = "https-record"';
  const found = campaign(
    'fallback',
    `blocks = 1\nprofiles = ["${profile('fallback-link')}"]\n${SMALL}${arm('there', auto)}${arm('not-there', `${auto}\nserver = "planted"`)}` +
      `[servers.planted]\ncommand = "${PLANTED} -root {page} -listen {address}:{port} -cert {cert} -key {key} -no-quic"\n`,
  );
  assertEach(labelsOf(found, 'not-there', 'fell-back-to-tcp'));
  assertNotEach(labelsOf(found, 'there', 'fell-back-to-tcp'));
  for (const { arm: name, browser } of found.samples) {
    const protocols = new Set(browser?.requests.map(({ protocol }) => protocol));
    if (name === 'not-there') assert.deepEqual([...protocols], ['h2']);
    // Both browsers have learned of HTTP/3 by DNS, and the one that may use it races TCP against
    // QUIC.
    assert.ok((browser?.httpsRecordQueries ?? 0) > 0);
    if (name === 'there')
      assert.match(browser?.requests[0]?.alternateProtocolUsage ?? '', /^dnsAlpnH3Job|^mainJob/);
  }
});

test('lost first packet is a retransmitted SYN over TCP and a lost Initial over QUIC', () => {
  const arms = `${arm('h2', 'protocol = "h2"')}${arm('h3', 'protocol = "h3"')}`;
  const found = campaign(
    'lost',
    // The page that a warm browser shows first does not cross the link, so the first packets are
    // the load's.
    `blocks = 1\nbrowser = "warm"\nprofiles = ["${profile('lost-link', 'lose_packets = [1, 2, 3, 4]\n')}"]\n${SMALL}${arms}`,
  );
  assertEach(labelsOf(found, 'h2', 'syn-retransmitted'));
  assertEach(labelsOf(found, 'h3', 'initial-lost'));
  for (const { arm: name, times } of found.samples) {
    // A lost SYN costs one second by the kernel's timer; the browser's QUIC has learned a shorter
    // one.
    if (name === 'h2') assert.ok((times.firstByte ?? 0) > 1, String(times.firstByte));
  }
});
