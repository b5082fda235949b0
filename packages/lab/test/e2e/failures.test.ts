import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { makeCertificate } from '../../src/run/certificate.js';
import type { Sample } from '../../src/samples/sample.js';
import { packageFolder } from '../places.js';
import { faultsOf, lab, reportOfQuietMachine, samplesOf, type Run } from './lab.js';

/**
 * Pages that do not load over one or both protocols: each has to be an outcome of the arm, valid
 * and slower than all loads that complete, whichever the protocol.
 */

const root = join(packageFolder, '../..');
/** A third-party server with selectable faults (tests/clients/quic-go/planted). */
const PLANTED = join(process.env.CARGO_TARGET_DIR ?? join(root, 'target'), 'test-clients/planted');

const folder = mkdtempSync(join(tmpdir(), 'lab-failures-'));
after(() => {
  rmSync(folder, { recursive: true });
});

const DIRECTION = 'rate_mbit_per_second = 50\ndelay_ms = 5\nqueue_ms = 100\n';

function profile(name: string, more = '', direction = DIRECTION): string {
  const path = join(folder, `${name}.toml`);
  writeFileSync(path, `name = "${name}"\n[up]\n${direction}[down]\n${direction}${more}`);
  return path;
}

interface Tried {
  readonly run: Run;
  readonly quiet: Run;
  /** By arm and visit, with and without rehearsal. */
  readonly samples: readonly Sample[];
  readonly report: string;
}

function campaign(name: string, linkPath: string, arms: string, seconds = 30): Tried {
  const path = join(folder, `${name}-plan.toml`);
  const out = join(folder, name);
  const page = `[page]\nspec = "${join(packageFolder, 'test/fixtures/page.toml')}"\n`;
  writeFileSync(
    path,
    `name = "${name}"\nseed = 3\nblocks = 1\ntimeout_seconds = ${seconds}\nprofiles = ["${linkPath}"]\n${page}${arms}`,
  );
  const run = lab(['run', path, '--out', out]);
  assert.ok(run.status === 0 || run.status === 3, run.stderr);
  return {
    run,
    quiet: reportOfQuietMachine(out),
    samples: samplesOf(out),
    report: readFileSync(join(out, 'report.html'), 'utf8'),
  };
}

const arm = (name: string, server: string): string =>
  `[[arms]]\nname = "${name}"\nprotocol = "${name.slice(0, 2)}"\nserver = "${server}"\n`;
const server = (name: string, more: string): string =>
  `[servers.${name}]\ncommand = "${PLANTED} -root {page} -listen {address}:{port} ${more}"\n`;

/**
 * Asserts that a load failed as expected of its arm, and that none of its figures is from an error
 * page.
 */
function assertFailed(
  { arm: name, outcome, times, browser, ...sample }: Sample,
  says: RegExp,
): void {
  assert.deepEqual(faultsOf(sample), [], name);
  assert.notEqual(outcome, 'completed', name);
  assert.match(sample.reason ?? '', says, name);
  assert.deepEqual(times, {}, name);
  assert.ok(browser?.documentFault !== undefined, name);
}

function assertCompleted({ outcome, reason, times, ...sample }: Sample): void {
  assert.deepEqual([outcome, faultsOf(sample)], ['completed', []], reason);
  assert.ok((times.firstByte ?? 0) > 0 && (times.load ?? 0) > 0);
}

test('server that answers 500 over HTTP/3 only is reported as a page that did not load', () => {
  const servers = server('half', '-cert {cert} -key {key} -status-h3 500');
  const { run, quiet, samples, report } = campaign(
    'status',
    profile('status'),
    `${arm('h2', 'half')}${arm('h3', 'half')}${servers}`,
  );
  assert.equal(run.status, 3, run.stderr);
  for (const sample of samples) {
    if (sample.arm === 'h2') assertCompleted(sample);
    else assertFailed(sample, /^0 of \d+ requests answered; https:\/\/bench\.test\/: status 500$/);
  }
  const line = 'h3 on status: 0 of 1 loaded over HTTP/3 (1 × the document has status 500)';
  assert.ok(quiet.stdout.trimStart().startsWith(`${line}\n`), quiet.stdout.slice(0, 300));
  // Loads that a busy machine made invalid are not checked.
  if (run.stdout.includes(line)) assert.ok(report.indexOf(line) < report.indexOf('<h2>Load times'));
  for (const { stdout } of [run, quiet]) assert.doesNotMatch(stdout, /h[23] is (slower|faster)/);
});

test('blocked UDP fails the HTTP/3 arm, and an untrusted certificate fails both', () => {
  const blocked = profile('blocked', '[[rules]]\nprotocol = "udp"\nblock = true\n');
  const { samples } = campaign(
    'no-udp',
    blocked,
    `${arm('h2', 'pronghorn')}${arm('h3', 'pronghorn')}`,
  );
  for (const sample of samples) {
    if (sample.arm === 'h2') assertCompleted(sample);
    else assertFailed(sample, /^net::ERR_QUIC|^no load event/);
  }
  const { certPath, keyPath } = makeCertificate(folder, '10.77.0.2');
  const strange = server('strange', `-cert ${certPath} -key ${keyPath}`);
  const both = campaign(
    'strange',
    profile('strange'),
    `${arm('h2', 'strange')}${arm('h3', 'strange')}${strange}`,
  );
  for (const sample of both.samples) {
    assertFailed(sample, sample.arm === 'h2' ? /^net::ERR_CERT_/ : /^net::ERR_(QUIC|CERT)_/);
  }
  assert.match(
    both.quiet.stdout,
    /load +h3 \/ h2 .*no load completed in either arm: h3 0 of 1, h2 0 of 1\n/,
  );
});

test('loads over a link that loses more than half of the packets are outcomes of either arm', () => {
  const lossy = profile('lossy', '', `${DIRECTION}loss_percent = 55\n`);
  const arms = `${arm('h2', 'pronghorn')}${arm('h3', 'pronghorn')}`;
  const { samples } = campaign('lossy', lossy, arms, 6);
  assert.equal(samples.length, 4);
  for (const sample of samples)
    assert.deepEqual(faultsOf(sample), [], `${sample.arm}: ${sample.reason ?? ''}`);
  assert.ok(samples.some(({ outcome }) => outcome !== 'completed'));
});
