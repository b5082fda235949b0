import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { LabError } from '../src/errors.js';
import { readPageSpec } from '../src/page/spec.js';
import { readPlan } from '../src/plan.js';
import { packageFolder } from './places.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-plan-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});
writeFileSync(join(folder, 'link.toml'), 'name = "link"\n');
mkdirSync(join(folder, 'site'));

const good = `
name = "good"
seed = 7
blocks = 3
profiles = ["link.toml"]
[page]
spec = "page.toml"
[[arms]]
name = "h2"
protocol = "h2"
[[arms]]
name = "h3"
protocol = "h3"
congestion = "bbr"
`;

function write(text: string): string {
  const path = join(folder, 'plan.toml');
  writeFileSync(path, text);
  return path;
}

/** The error that a plan gives, for a text that `good` becomes by one replacement. */
function errorFor(from: string | RegExp, to: string): LabError {
  const text = good.replace(from, to);
  assert.notEqual(text, good, 'the replacement changed nothing');
  try {
    readPlan(write(text));
  } catch (thrown) {
    assert.ok(thrown instanceof LabError, String(thrown));
    return thrown;
  }
  assert.fail('the plan was accepted');
}

test('good plan is read with its defaults and with paths from its own folder', () => {
  const plan = readPlan(write(good));
  assert.equal(plan.timeoutSeconds, 60);
  assert.deepEqual(plan.arms, [
    { name: 'h2', protocol: 'h2', congestion: 'cubic' },
    { name: 'h3', protocol: 'h3', congestion: 'bbr' },
  ]);
  assert.deepEqual(plan.profiles, [{ name: 'link', path: join(folder, 'link.toml'), text: 'name = "link"\n' }]);
  assert.deepEqual(plan.page, { kind: 'spec', path: join(folder, 'page.toml') });
});

test('demo plan is valid and names profiles that exist', () => {
  const plan = readPlan(join(packageFolder, 'plans/demo.toml'));
  assert.deepEqual(
    plan.profiles.map(({ name }) => name),
    ['fibre', 'lte-bad-uplink'],
  );
  assert.equal(plan.blocks, 5);
  assert.deepEqual(
    plan.arms.map(({ protocol, congestion }) => `${protocol} ${congestion}`),
    ['h2 cubic', 'h3 cubic'],
  );
});

const malformed: [what: string, from: string | RegExp, to: string, says: RegExp][] = [
  ['unknown key', 'blocks =', 'blcoks =', /unknown key `blcoks`; did you mean `blocks`\?/],
  ['unknown key beside good ones', 'seed = 7', 'seed = 7\nrepeat = 5', /unknown key `repeat`; valid here: .*`blocks`/],
  [
    'unknown key of an arm',
    'congestion = "bbr"',
    'congestoin = "bbr"',
    /unknown key `arms\[1\]\.congestoin`; did you mean `congestion`\?/,
  ],
  ['unknown key of the page', 'spec =', 'specs =', /unknown key `page\.specs`; did you mean `spec`\?/],
  ['missing key', 'blocks = 3', '', /`blocks`: is missing; it must be a whole number of blocks from 1 to 10000/],
  ['missing arms', /\[\[arms\]\][^]*/, '', /`arms`: is missing; it must be a list of tables, each headed \[\[arms\]\]/],
  ['number out of range', 'blocks = 3', 'blocks = 0', /`blocks`: must be a whole number of blocks from 1 to 10000/],
  ['text for a number', 'seed = 7', 'seed = "7"', /`seed`: must be a whole number from 0 to 281474976710655/],
  [
    'unknown protocol',
    'protocol = "h3"',
    'protocol = "h4"',
    /`arms\[1\]\.protocol`: must be one of "h1", "h2", "h3", not "h4"/,
  ],
  [
    'misspelt algorithm',
    '"bbr"',
    '"cubik"',
    /must be one of "cubic", "bbr", "newreno", not "cubik"; did you mean "cubic"\?/,
  ],
  ['name that is no file name', 'name = "h3"', 'name = "../h3"', /`arms\[1\]\.name`: must be 1 to 40 letters/],
  ['arm named twice', 'name = "h3"', 'name = "h2"', /`arms`: the name "h2" is there twice/],
  ['no profiles', '["link.toml"]', '[]', /`profiles`: must name at least one link profile/],
  ['page with nothing', 'spec = "page.toml"', '', /`page`: must have either `spec` or `folder`/],
  ['page with both', 'spec = "page.toml"', 'spec = "a"\nfolder = "site"', /`page`: must have either/],
  [
    'requests for a specification',
    'spec = "page.toml"',
    'spec = "a"\nrequests = 4',
    /`page\.requests`: belongs to `folder` only/,
  ],
  ['no TOML', 'blocks = 3', 'blocks = ', /plan\.toml, line 4, column \d+: not valid TOML/],
];

for (const [what, from, to, says] of malformed) {
  test(`plan with ${what} is malformed`, () => {
    const error = errorFor(from, to);
    assert.equal(error.exitCode, 65);
    assert.match(error.line(), says);
    assert.match(error.line(), /^error: plan .*plan\.toml/);
    assert.equal(error.line().split('\n').length, 1);
  });
}

test('profile that is not there is missing input', () => {
  const error = errorFor('link.toml', 'lnik.toml');
  assert.equal(error.exitCode, 66);
  assert.match(error.line(), /lnik\.toml does not exist; check the path/);
});

test('page folder that is not there is missing input', () => {
  const error = errorFor('spec = "page.toml"', 'folder = "no-site"');
  assert.equal(error.exitCode, 66);
  assert.match(error.line(), /there is no folder .*no-site/);
});

test('plan that is not there is missing input', () => {
  assert.throws(() => readPlan(join(folder, 'nothing.toml')), { exitCode: 66 });
});

test('page specification with too few bytes for its resources is malformed', () => {
  const path = join(folder, 'page.toml');
  writeFileSync(
    path,
    'name = "p"\nseed = 1\nhtml_bytes = 2000\n[[resources]]\nkind = "image"\ncount = 10\ntotal_bytes = 5000\n',
  );
  assert.throws(() => readPageSpec(path), /`resources\[0\]\.total_bytes`: must be at least 2048 for each resource/);
});
