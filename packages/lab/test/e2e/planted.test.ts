import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import type { ArmComparison } from '../../src/compare/campaign.js';
import type { Sample } from '../../src/sample.js';
import type { LabelKind } from '../../src/trace/label.js';
import { packageFolder } from '../places.js';

/**
 * Does the lab find what is known to be wrong? Each campaign has one fault planted in it, by a server or a link that has
 * it on purpose, and an arm beside it that has not.
 */

const CLI = join(packageFolder, 'dist/cli.js');
const root = join(packageFolder, '../..');
/** A server that nobody of this project wrote, with faults to choose from (tests/clients/quic-go/planted). */
const PLANTED = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'test-clients/planted');

const folder = mkdtempSync(join(tmpdir(), 'lab-planted-'));
after(() => {
  rmSync(folder, { recursive: true });
});

interface Found {
  readonly samples: readonly Sample[];
  readonly comparisons: readonly ArmComparison[];
}

/** Runs a campaign of the plan's text after its name, and gives what it wrote. */
function campaign(name: string, plan: string): Found {
  const path = join(folder, `${name}.toml`);
  const out = join(folder, name);
  writeFileSync(path, `name = "${name}"\nseed = 3\ntimeout_seconds = 30\n${plan}`);
  const run = spawnSync(process.execPath, [CLI, 'run', path, '--out', out], { encoding: 'utf8', timeout: 400_000 });
  const lines = readFileSync(join(out, 'samples.jsonl'), 'utf8').trim().split('\n');
  const samples = lines.map((line) => JSON.parse(line) as Sample);
  assert.ok(
    samples.every(({ outcome }) => outcome === 'completed'),
    run.stderr,
  );
  const { comparisons } = JSON.parse(readFileSync(join(out, 'comparisons.json'), 'utf8')) as Found;
  return { samples, comparisons };
}

/** The labels of one kind in the loads of an arm, one list a load. */
function labelsOf({ samples }: Found, arm: string, kind: LabelKind): number[] {
  return samples
    .filter((sample) => sample.arm === arm)
    .map(({ labels = [] }) => labels.filter((label) => label.kind === kind).length);
}

/** A machine that does other things too may make any server slow for once. */
function assertFew(labels: readonly number[]): void {
  const loads = labels.filter((count) => count > 0).length;
  assert.ok(loads <= labels.length / 3, `${loads} of ${labels.length} loads`);
}

function profile(name: string, more = ''): string {
  const direction = 'rate_mbit_per_second = 50\ndelay_ms = 40\nqueue_ms = 200\n';
  const path = join(folder, `${name}.toml`);
  writeFileSync(path, `name = "${name}"\n[up]\n${direction}${more}[down]\n${direction}`);
  return path;
}

const SMALL = `[page]\nspec = "${join(packageFolder, 'test/fixtures/page.toml')}"\n`;
const arm = (name: string, text: string): string => `[[arms]]\nname = "${name}"\n${text}\n`;

test('300 ms that a server adds over HTTP/2 only are found, measured and blamed on the server', (context) => {
  const server = `server = "planted"`;
  const found = campaign(
    'slow',
    `blocks = 12\nprofiles = ["${profile('slow-link')}"]\n${SMALL}${arm('h2', `protocol = "h2"\n${server}`)}${arm('h3', `protocol = "h3"\n${server}`)}` +
      `[servers.planted]\ncommand = "${PLANTED} -root {page} -listen {address}:{port} -cert {cert} -key {key} -delay-h2 300ms"\n`,
  );
  assert.ok(Math.min(...labelsOf(found, 'h2', 'slow-server')) > 0);
  assertFew(labelsOf(found, 'h3', 'slow-server'));
  const firstByte = found.comparisons.find(({ metric }) => metric === 'firstByte');
  assert.ok(firstByte);
  // A busy machine may cost some loads their validity; six pairs that all agree are enough for this.
  if (firstByte.blocks < 6) {
    context.skip(`the machine was too busy for the link to keep its deadlines: ${firstByte.blocks} blocks are valid`);
    return;
  }
  assert.ok(firstByte.wilcoxon.p < 0.05, `${firstByte.wilcoxon.p} of ${firstByte.blocks} blocks`);
  assert.ok(firstByte.shift.value < -0.25 && firstByte.shift.value > -0.6, String(firstByte.shift.value));
});

test('window of 64 KiB is recognised from the packets', () => {
  const page = `[page]\nspec = "${join(packageFolder, 'pages/kakhki-1x1m.toml')}"\n`;
  const found = campaign(
    'window',
    `blocks = 1\nprofiles = ["${profile('window-link')}"]\n${page}${arm('whole', 'protocol = "h3"')}${arm('small', 'protocol = "h3"\nserver = "small"')}` +
      `[servers.small]\nargs = ["--limit", "send_window_bytes=64KiB"]\n`,
  );
  assert.ok(Math.min(...labelsOf(found, 'small', 'flow-control-stall')) > 0);
  assertFew(labelsOf(found, 'whole', 'flow-control-stall'));
});

test('server that announces HTTP/3 and does not have it makes a load that fell back to TCP', () => {
  const auto = 'protocol = "auto"\ndiscovery = "https-record"';
  const found = campaign(
    'fallback',
    `blocks = 1\nprofiles = ["${profile('fallback-link')}"]\n${SMALL}${arm('there', auto)}${arm('not-there', `${auto}\nserver = "planted"`)}` +
      `[servers.planted]\ncommand = "${PLANTED} -root {page} -listen {address}:{port} -cert {cert} -key {key} -no-quic"\n`,
  );
  assert.ok(Math.min(...labelsOf(found, 'not-there', 'fell-back-to-tcp')) > 0);
  assertFew(labelsOf(found, 'there', 'fell-back-to-tcp'));
  for (const { arm: name, browser } of found.samples) {
    const protocols = new Set(browser?.requests.map(({ protocol }) => protocol));
    if (name === 'not-there') assert.deepEqual([...protocols], ['h2']);
  }
});

test('lost first packet is a SYN sent again over TCP and a lost Initial over QUIC', () => {
  const arms = `${arm('h2', 'protocol = "h2"')}${arm('h3', 'protocol = "h3"')}`;
  const found = campaign(
    'lost',
    `blocks = 1\nprofiles = ["${profile('lost-link', 'lose_packets = [1, 2, 3, 4]\n')}"]\n${SMALL}${arms}`,
  );
  assert.ok(Math.min(...labelsOf(found, 'h2', 'syn-retransmitted')) > 0);
  assert.ok(Math.min(...labelsOf(found, 'h3', 'initial-lost')) > 0);
  for (const { arm: name, times } of found.samples) {
    // A second for a SYN by the kernel's clock; the browser's QUIC has learned to be quicker.
    if (name === 'h2') assert.ok((times.firstByte ?? 0) > 1, String(times.firstByte));
  }
});
