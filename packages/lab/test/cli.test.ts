import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { packageFolder } from './places.js';
import { recordedFolder } from './recorded.js';

const CLI = fileURLToPath(new URL('../src/cli.js', import.meta.url));
const plan = join(packageFolder, 'test/fixtures/plan.toml');

const folder = mkdtempSync(join(tmpdir(), 'lab-cli-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function lab(args: readonly string[], env: Record<string, string> = {}): Run {
  // Separate from this machine's campaigns: neither waits for the other.
  const own: NodeJS.ProcessEnv = {
    ...process.env,
    TMPDIR: folder,
    PRONGHORN_LAB_LOCK: join(folder, 'machine.lock'),
  };
  delete own.PRONGHORN;
  delete own.CHROMIUM;
  return spawnSync(process.execPath, [CLI, ...args], { encoding: 'utf8', env: { ...own, ...env } });
}

/**
 * Creates a program that answers like the real one as far as a test needs, and fails as the test
 * requires.
 */
function program(name: string, script: string): string {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

const chromium = program('chromium', 'echo "Chromium 156.0.8078.79"');
const pronghornWhoseLink = (name: string, link: string): string =>
  program(name, `[ "$1" = --version ] && { echo "pronghorn 0.1.0"; exit 0; }\n${link}`);

function assertOneLine(run: Run, status: number, says: RegExp): void {
  assert.equal(run.status, status, run.stderr);
  assert.match(run.stderr, says);
  assert.match(run.stderr, /^error: [^\n]+\n$/);
  assert.equal(run.stdout, '');
}

const out = join(folder, 'out');

/** Asserts that nothing of a campaign remains: neither output nor scratch folder. */
function assertNothingWritten(): void {
  assert.equal(existsSync(out), false);
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.startsWith('pronghorn-lab-')),
    [],
  );
}

test('help lists each exit code and goes to stdout', () => {
  const run = lab(['--help']);
  assert.equal(run.status, 0);
  for (const code of [0, 1, 2, 3, 4, 65, 66, 69, 73, 75, 77, 130])
    assert.match(run.stdout, new RegExp(`\n  ${code} +\\S`));
  const readme = readFileSync(join(packageFolder, 'README.md'), 'utf8');
  for (const code of [0, 1, 2, 3, 4, 65, 66, 69, 73, 75, 77, 130])
    assert.match(readme, new RegExp(`\n\\| ${code} +\\|`));
});

test('version is the package version', () => {
  const { version } = JSON.parse(readFileSync(join(packageFolder, 'package.json'), 'utf8')) as {
    version: string;
  };
  assert.equal(lab(['--version']).stdout, `pronghorn-lab ${version}\n`);
});

test('usage error is reported in one line', () => {
  assertOneLine(lab(['rnu']), 2, /unknown command `rnu`; did you mean `run`\?/);
  assertOneLine(lab(['run']), 2, /usage: pronghorn-lab run PLAN\.toml/);
  assertOneLine(lab(['run', plan, '--bolcks', '3']), 2, /unknown option '--bolcks'/);
  assertOneLine(lab(['run', plan, '--seed', '-1x']), 2, /--seed/);
  assertOneLine(lab(['run', plan, '--seed=1e3']), 2, /--seed must be a whole number from 0 to/);
  assertOneLine(lab(['page', plan]), 2, /needs --out DIR/);
  assertOneLine(lab(['reproduce', 'kiwi']), 2, /unknown study `kiwi`; did you mean `kiwee`\?/);
  assertOneLine(
    lab(['reproduce', 'kiwee', '--blocks', '0']),
    2,
    /--blocks must be a whole number from 1 to 10000, not 0/,
  );
  assertOneLine(
    lab(['conformance', '--congestion', 'cubic,bbbr']),
    2,
    /unknown controller `bbbr`; did you mean `bbr`\?/,
  );
  assertOneLine(
    lab(['conformance', '--seconds', '2']),
    2,
    /--seconds must be a whole number from 3 to 600, not 2/,
  );
  assertOneLine(lab(['conformance', 'cubic']), 2, /unexpected argument `cubic`/);
  assertOneLine(lab(['reproduce', 'kiwee', '--resume']), 2, /--resume needs the --out DIR/);
  assertOneLine(
    lab(['reproduce', 'kiwee', '--resume', '--out', out, '--blocks', '3']),
    2,
    /omit --seed, --blocks and --profile/,
  );
  assertOneLine(
    lab(['reproduce', 'kiwee', '--resume', '--out', folder]),
    66,
    /has no criteria\.json; name the output folder/,
  );
  assert.equal(lab([]).status, 2);
});

test('true condition of --fail-if ends a report with code 4 and a line', () => {
  const target = join(folder, 'judged');
  cpSync(join(packageFolder, 'test/fixtures/campaign'), target, { recursive: true });
  const run = lab([
    'report',
    target,
    '--fail-if',
    'h3.median > 1 ms',
    '--fail-if',
    'h2.completed < 50 %',
  ]);
  assert.equal(run.status, 4, run.stderr);
  assert.match(run.stderr, /^failed: h3\.median > 1 ms on mild\/page: \d\.\d{4} s > 0\.0010 s\n$/);
  assert.match(run.stdout, /report: /);
  assert.equal(lab(['report', target, '--fail-if', 'h3.median > 60 s']).status, 0);
  assert.equal(lab(['report', target, '--fail-if', 'surely h3.median > 1 ms']).status, 0);
});

test('invalid condition of --fail-if is reported before any other work', () => {
  const target = join(folder, 'judged-wrongly');
  cpSync(join(packageFolder, 'test/fixtures/campaign'), target, { recursive: true });
  assertOneLine(
    lab(['report', target, '--fail-if', 'h3.median > 1']),
    2,
    /column 13: a number needs s, ms or %/,
  );
  assertOneLine(
    lab(['report', target, '--fail-if', 'h4.median > 1 s']),
    2,
    /column 1: unknown arm h4/,
  );
  assertOneLine(
    lab(['run', plan, '--out', out, '--fail-if', 'h9.median > 1 s']),
    2,
    /column 1: unknown arm h9/,
  );
  assert.deepEqual(readdirSync(target).sort(), ['campaign.json', 'samples.jsonl']);
  assertNothingWritten();
});

test('malformed plan is reported in one line and nothing is written', () => {
  const path = join(folder, 'bad.toml');
  writeFileSync(path, readFileSync(plan, 'utf8').replace('blocks = 1', 'blocks = "one"'));
  assertOneLine(lab(['run', path, '--out', out]), 65, /`blocks`: must be a whole number of blocks/);
  assertNothingWritten();
});

test('missing pronghorn is reported with how to get it', () => {
  const run = lab(['run', plan, '--out', out, '--pronghorn', join(folder, 'nowhere')]);
  assertOneLine(
    run,
    69,
    /nowhere does not exist or is not executable; build it with `cargo build --release`, or set PRONGHORN=/,
  );
  assertNothingWritten();
});

test('missing Chromium is reported with how to get it', () => {
  const env = {
    PRONGHORN: pronghornWhoseLink('pronghorn-a', 'exit 0'),
    CHROMIUM: join(folder, 'nowhere'),
  };
  assertOneLine(
    lab(['run', plan, '--out', out], env),
    69,
    /install the package chromium, or set CHROMIUM=/,
  );
  assertNothingWritten();
});

test('browser that is not Chromium is rejected', () => {
  const env = { PRONGHORN: pronghornWhoseLink('pronghorn-b', 'exit 0'), CHROMIUM: '/bin/true' };
  assertOneLine(
    lab(['run', plan, '--out', out], env),
    69,
    /\/bin\/true --version printed no version of Chromium/,
  );
  assertNothingWritten();
});

test("missing permission for the link ends with the link's own message and code", () => {
  const script = 'echo "error: no right to make network namespaces: run as root" >&2; exit 77';
  const env = { PRONGHORN: pronghornWhoseLink('pronghorn-c', script), CHROMIUM: chromium };
  const run = lab(['run', plan, '--out', out], env);
  assertOneLine(
    run,
    77,
    /the link of profile mild did not come up: no right to make network namespaces: run as root/,
  );
  assertNothingWritten();
});

test("malformed link profile ends with the link's own message", () => {
  const script = 'echo "error: profile mild.toml: line 3: unknown field" >&2; exit 65';
  const env = { PRONGHORN: pronghornWhoseLink('pronghorn-d', script), CHROMIUM: chromium };
  assertOneLine(lab(['run', plan, '--out', out], env), 65, /line 3: unknown field/);
  assertNothingWritten();
});

test('other failures of the link make it unavailable', () => {
  const env = { PRONGHORN: pronghornWhoseLink('pronghorn-e', 'exit 9'), CHROMIUM: chromium };
  assertOneLine(lab(['run', plan, '--out', out], env), 69, /did not come up/);
  assertNothingWritten();
});

test('output folder that is not empty is not changed', () => {
  const taken = mkdtempSync(join(folder, 'taken-'));
  writeFileSync(join(taken, 'mine'), 'text');
  assertOneLine(lab(['run', plan, '--out', taken]), 73, /is not empty; use another --out/);
  assert.deepEqual(readdirSync(taken), ['mine']);
});

test('page is generated into a folder', () => {
  const target = join(folder, 'page');
  const run = lab(['page', join(packageFolder, 'plans/demo-page.toml'), '--out', target]);
  assert.equal(run.status, 0, run.stderr);
  assert.match(run.stdout, /32 requests, 300000 bytes, seed 20/);
  assert.equal(readdirSync(join(target, 'images')).length, 23);
});

test('HAR file is recorded into a folder, and skipped entries are listed', () => {
  const target = join(folder, 'recording');
  const har = join(folder, 'page.har');
  const entry = (url: string, content: object): object => ({
    startedDateTime: '2026-11-22T12:00:00.500Z',
    request: { method: 'GET', url },
    response: { status: 200, headers: [], content },
  });
  const entries = [
    entry('https://a.test/', { text: 'hello' }),
    entry('https://a.test/lost', { size: 9 }),
  ];
  writeFileSync(har, JSON.stringify({ log: { entries } }));
  const run = lab(['capture', '--har', har, '--out', target]);
  assert.equal(run.status, 0, run.stderr);
  assert.equal(
    run.stdout,
    `${target}: 2 requests, 1 responses, 5 bytes\ndocument: https://a.test/, status 200, without a title\n` +
      'think times: 0 counted, 0 estimated, 1 left out\n',
  );
  assert.match(
    run.stderr,
    /^warning: GET https:\/\/a\.test\/: the HAR file has no time of the load event; /,
  );
  assert.match(
    run.stderr,
    /^warning: GET https:\/\/a\.test\/lost: its body could not be read; a replay answers 404$/m,
  );
  assertOneLine(
    lab(['capture', '--har', har, '--out', target]),
    73,
    /is not empty; use another --out/,
  );
  assertOneLine(
    lab(['capture', 'a.test', '--out', target]),
    2,
    /a\.test is not an http or https URL; give the full URL/,
  );
});

test('load that the link cannot run is kept as an invalid sample', () => {
  // The first call is the preflight of the only profile and algorithm; the loads follow.
  const counter = join(folder, 'calls');
  const script = `echo x >> ${counter}\n[ "$(wc -l < ${counter})" -le 1 ] && exit 0\necho "error: the far command ended early" >&2; exit 69`;
  const env = { PRONGHORN: pronghornWhoseLink('pronghorn-f', script), CHROMIUM: chromium };
  const target = join(folder, 'broken');
  const run = lab(['run', plan, '--out', target], env);
  assert.equal(run.status, 3, run.stderr);
  const samples = readFileSync(join(target, 'samples.jsonl'), 'utf8').trim().split('\n');
  assert.equal(samples.length, 6);
  assert.match(
    run.stdout,
    /is invalid: the load did not run: exit code 69, error: the far command ended early/,
  );
  assert.match(run.stderr, /\[1\/6\] mild rehearsal h\d: not-run .* INVALID/);
  const traces = readdirSync(join(target, 'traces'));
  assert.deepEqual(
    traces.map((load) => readdirSync(join(target, 'traces', load))),
    Array(6).fill(['output.log.gz']),
  );
});

test('load of a campaign is exported as HAR', () => {
  const run = lab(['har', recordedFolder, '5']);
  assert.equal(run.status, 0, run.stderr);
  const { log } = JSON.parse(run.stdout) as {
    log: { version: string; entries: { request: { method: string } }[] };
  };
  assert.equal(log.version, '1.2');
  assert.deepEqual(
    log.entries.map(({ request }) => request.method),
    Array(6).fill('GET'),
  );
  assertOneLine(
    lab(['har', recordedFolder, '99']),
    66,
    /has no load 99; take a number from the report/,
  );
  assertOneLine(lab(['har', recordedFolder]), 2, /usage: pronghorn-lab har DIR LOAD/);
});
