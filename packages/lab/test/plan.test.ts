import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { blocksForVerdict, MIN_CONTROL_BLOCKS, METRICS } from '../src/compare/compare-campaign.js';
import { LabError } from '../src/io/errors.js';
import { readPageSpec } from '../src/page/spec.js';
import { OWN_SERVER, type Arm, type Plan } from '../src/campaign/plan.js';
import { readPlan } from '../src/campaign/read-plan.js';
import { selectProfiles } from '../src/campaign/select-profiles.js';
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
against = "h2"
congestion = "bbr"
`;

function write(text: string): string {
  const path = join(folder, 'plan.toml');
  writeFileSync(path, text);
  return path;
}

/** Returns the error of the plan that results from `good` by one replacement. */
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

test('valid plan is read with its defaults and with paths relative to its folder', () => {
  const plan = readPlan(write(good));
  assert.equal(plan.timeoutSeconds, 60);
  assert.deepEqual(plan.arms, [
    {
      name: 'h2',
      protocol: 'h2',
      congestion: 'cubic',
      visit: 'first',
      server: 'pronghorn',
      comparedWith: null,
    },
    {
      name: 'h3',
      protocol: 'h3',
      congestion: 'bbr',
      visit: 'first',
      server: 'pronghorn',
      comparedWith: 'h2',
    },
  ]);
  assert.deepEqual(plan.profiles, [
    { name: 'link', path: join(folder, 'link.toml'), text: 'name = "link"\n' },
  ]);
  assert.deepEqual(plan.pages, [{ kind: 'spec', name: 'page', path: join(folder, 'page.toml') }]);
  assert.deepEqual(plan.blocks, { min: 3, max: 3, intervalPercent: undefined });
  assert.equal(plan.baseline, 'h2');
});

test('design creates an arm for each combination, and the control duplicates one', () => {
  const design =
    '[design]\nprotocols = ["h2", "h3"]\ncongestion = ["cubic", "bbr"]\nvisits = ["first", "early-data"]\n';
  const text = good
    .replace(/\[\[arms\]\][^]*/, design)
    .replace('seed = 7', 'control = ["h2-cubic"]\nbaseline = "h3-bbr"');
  const plan = readPlan(write(text));
  assert.deepEqual(
    plan.arms.map(({ name }) => name),
    [
      ...['h2-cubic', 'h3-cubic', 'h2-bbr', 'h3-bbr'],
      ...['h2-cubic-early-data', 'h3-cubic-early-data', 'h2-bbr-early-data', 'h3-bbr-early-data'],
      'h2-cubic-again',
    ],
  );
  const { comparedWith, ...original } = plan.arms[0] as Arm;
  assert.equal(comparedWith, 'h3-cubic');
  assert.deepEqual(plan.arms.at(-1), { ...original, name: 'h2-cubic-again', repeats: 'h2-cubic' });
  assert.equal(plan.baseline, 'h3-bbr');
  // Arms of the same visit and controller are compared with the arm of the baseline's protocol, and
  // that arm with the one of the baseline's controller.
  assert.deepEqual(
    plan.arms.map(({ comparedWith }) => comparedWith),
    [
      ...['h3-cubic', 'h3-bbr', 'h3-bbr', null],
      ...['h3-cubic-early-data', 'h3-bbr-early-data', 'h3-bbr-early-data', null],
      undefined,
    ],
  );
});

/** Returns the plan with these arms, each a line of keys. */
function withArms(...arms: string[]): string {
  const tables = arms.map((keys) => `[[arms]]\n${keys.replaceAll('; ', '\n')}\n`);
  return good.replace(/\[\[arms\]\][^]*/, tables.join(''));
}

const partners = (text: string): Record<string, string | undefined> =>
  Object.fromEntries(
    readPlan(write(text)).arms.map(({ name, comparedWith }) => [name, comparedWith ?? undefined]),
  );

test('repeat visits are compared with repeat visits, each kind with its own baseline', () => {
  const plan = withArms(
    ...['h2', 'h3'].flatMap((protocol) =>
      ['first', 'resumed', 'early-data'].map(
        (visit) => `name = "${protocol}-${visit}"; protocol = "${protocol}"; visit = "${visit}"`,
      ),
    ),
  );
  assert.deepEqual(partners(plan), {
    'h2-first': undefined,
    'h2-resumed': undefined,
    'h2-early-data': undefined,
    'h3-first': 'h2-first',
    'h3-resumed': 'h2-resumed',
    'h3-early-data': 'h2-early-data',
  });
});

test('controllers are compared with each other over one protocol only, and otherwise where the plan says so', () => {
  const two = [
    'name = "h2"; protocol = "h2"',
    'name = "h2-bbr"; protocol = "h2"; congestion = "bbr"',
  ];
  assert.deepEqual(partners(withArms(...two)), { h2: undefined, 'h2-bbr': 'h2' });
  const three = [...two, 'name = "h3-bbr"; protocol = "h3"; congestion = "bbr"'];
  assert.deepEqual(partners(withArms(...three)), {
    h2: undefined,
    'h2-bbr': 'h2',
    'h3-bbr': 'h2-bbr',
  });
  const meant = [
    two[0] as string,
    'name = "h3-bbr"; protocol = "h3"; congestion = "bbr"; against = "h2"',
  ];
  assert.deepEqual(partners(withArms(...meant)), { h2: undefined, 'h3-bbr': 'h2' });
});

for (const [name, arms, expected] of [
  [
    'a repeat visit beside first ones only',
    ['name = "h2"; protocol = "h2"', 'name = "h2-resumed"; protocol = "h2"; visit = "resumed"'],
    /"h2-resumed" is a repeat visit \("resumed"\), and the plan has no other arm to compare it with; add one with `visit = "resumed"`/,
  ],
  [
    'a repeat visit against a first one',
    [
      'name = "h2"; protocol = "h2"',
      'name = "h3"; protocol = "h3"; visit = "early-data"; against = "h2"',
    ],
    /arm h3: `against`: "h2" is a first visit, and this arm a repeat visit \("early-data"\); give the two the same `visit`/,
  ],
  [
    'protocol and controller that differ at once',
    ['name = "h2"; protocol = "h2"', 'name = "h3"; protocol = "h3"; congestion = "bbr"'],
    /"h3" differs from "h2" in its protocol and its congestion controller \(bbr\), so a verdict could not be attributed to any of them; add an arm like "h3" with `protocol = "h2"`, or use `against = "h2"`/,
  ],
  [
    'two servers over two protocols',
    [
      'name = "h2"; protocol = "h2"',
      'name = "h3"; protocol = "h3"; server = "slow"\n[servers.slow]',
    ],
    /"h3" differs from "h2" in its protocol and its server \(slow\), .*; add an arm like "h3" with `protocol = "h2"`, or use/,
  ],
  [
    'two initial windows over two protocols',
    ['name = "h2"; protocol = "h2"', 'name = "h3"; protocol = "h3"; initial_window = 32'],
    /"h3" differs from "h2" in its protocol and its initial window \(32\), /,
  ],
  [
    'a server and a controller that differ at once',
    [
      'name = "h2"; protocol = "h2"',
      'name = "x"; protocol = "h2"; congestion = "bbr"; server = "slow"\n[servers.slow]',
    ],
    /"x" differs from "h2" in its congestion controller \(bbr\) and its server \(slow\), .*; add an arm that differs from "x" in only one of these/,
  ],
  [
    'repeat visits to two servers over two protocols',
    [
      'name = "h2"; protocol = "h2"',
      'name = "a"; protocol = "h2"; visit = "resumed"',
      'name = "b"; protocol = "h3"; visit = "resumed"; server = "slow"\n[servers.slow]',
    ],
    /"[ab]" differs from "[ab]" in its protocol and its server/,
  ],
  [
    'two arms against each other',
    [
      'name = "h2"; protocol = "h2"; against = "h3"',
      'name = "h3"; protocol = "h3"; against = "h2"',
    ],
    /arm h2: `against`: "h3" is already compared with this arm/,
  ],
  [
    'an arm against itself',
    ['name = "h2"; protocol = "h2"', 'name = "h3"; protocol = "h3"; against = "h3"'],
    /arm h3: `against`: there is no other arm "h3"; name one of "h2"/,
  ],
] as const) {
  test(`plan that would compare ${name} is rejected with what to do`, () => {
    assert.throws(
      () => readPlan(write(withArms(...arms))),
      (thrown) =>
        thrown instanceof LabError && thrown.exitCode === 65 && expected.test(thrown.line()),
    );
  });
}

test('each arm is compared with one that differs from it in one setting', () => {
  const arms = ['h2', 'h3'].flatMap((protocol) => [
    `name = "${protocol}"; protocol = "${protocol}"`,
    `name = "${protocol}-slow"; protocol = "${protocol}"; server = "slow"`,
    `name = "${protocol}-wide"; protocol = "${protocol}"; initial_window = 32`,
    `name = "${protocol}-slow-bbr"; protocol = "${protocol}"; server = "slow"; congestion = "bbr"`,
  ]);
  assert.deepEqual(partners(`${withArms(...arms)}[servers.slow]\nargs = ["--limit", "x=1"]\n`), {
    h2: undefined,
    h3: 'h2',
    'h2-slow': 'h2',
    'h3-slow': 'h2-slow',
    'h2-wide': 'h2',
    'h3-wide': 'h2-wide',
    'h2-slow-bbr': 'h2-slow',
    'h3-slow-bbr': 'h2-slow-bbr',
  });
  // A plan may request any comparison by name; the same arm twice has no difference.
  const meant = withArms(
    'name = "h2"; protocol = "h2"',
    'name = "h3"; protocol = "h3"; server = "slow"; against = "h2"',
  );
  assert.deepEqual(partners(`${meant}[servers.slow]\n`), { h2: undefined, h3: 'h2' });
  const twice = withArms('name = "a"; protocol = "h2"', 'name = "b"; protocol = "h2"').replace(
    'seed = 7',
    'baseline = "b"\nseed = 7',
  );
  assert.deepEqual(partners(twice), { a: 'b', b: undefined });
});

/** Returns the arms that these lines of a design generate. */
const designed = (lines: string): Record<string, string | undefined> =>
  partners(good.replace(/\[\[arms\]\][^]*/, `[design]\n${lines}\n`));

test('TCP-only setting multiplies the TCP arms and leaves each HTTP/3 arm once', () => {
  const protocols = 'protocols = ["h1", "h2", "h3"]';
  assert.deepEqual(designed(`${protocols}\ntcp_slow_start_after_idle = [true]`), {
    'h1-idle-restart': undefined,
    'h2-idle-restart': 'h1-idle-restart',
    h3: 'h1-idle-restart',
  });
  assert.deepEqual(designed(`${protocols}\ntcp_slow_start_after_idle = [true, false]`), {
    'h1-idle-restart': undefined,
    'h2-idle-restart': 'h1-idle-restart',
    h3: 'h1-idle-restart',
    h1: 'h1-idle-restart',
    h2: 'h1',
  });
  const repeated = designed(
    'protocols = ["h2", "h3"]\nvisits = ["first", "resumed"]\ntcp_slow_start_after_idle = [true]',
  );
  assert.deepEqual(Object.keys(repeated), [
    'h2-idle-restart',
    'h3',
    'h2-resumed-idle-restart',
    'h3-resumed',
  ]);
  assert.throws(
    () => designed('protocols = ["h3"]\ntcp_slow_start_after_idle = [true]'),
    /is a TCP setting, and all arms use QUIC/,
  );
});

test('design has no repeat visits over cleartext HTTP, and rejects a design with nothing else', () => {
  assert.deepEqual(designed('protocols = ["http", "h2", "h3"]\nvisits = ["first", "resumed"]'), {
    http: undefined,
    h2: 'http',
    h3: 'http',
    'h2-resumed': undefined,
    'h3-resumed': 'h2-resumed',
  });
  assert.throws(
    () => designed('protocols = ["http", "h2"]\nvisits = ["resumed"]'),
    /must have "first" for the protocol "http"/,
  );
});

test('restart after idle is an axis of TCP, off for all arms unless the plan says otherwise', () => {
  const listed = readPlan(
    write(good.replace('name = "h2"', 'name = "h2"\ntcp_slow_start_after_idle = true')),
  ).arms;
  assert.deepEqual(
    listed.map(({ slowStartAfterIdle }) => slowStartAfterIdle),
    [true, undefined],
  );
  const design = '[design]\nprotocols = ["h2", "h3"]\ntcp_slow_start_after_idle = [false, true]\n';
  assert.deepEqual(partners(good.replace(/\[\[arms\]\][^]*/, design)), {
    h2: undefined,
    h3: 'h2',
    'h2-idle-restart': 'h2',
  });
});

test('browser, certificate, think times and reference servers follow the plan, or else the documented defaults', () => {
  const plain = readPlan(write(good));
  assert.deepEqual([plain.browser, plain.certificate], ['cold', 'small']);
  const text = good
    .replace('seed = 7', 'browser = "warm"\ncertificate = "rsa-chain"')
    .replace('spec = "page.toml"', 'folder = "site"\nrequests = 4\nthink_times = false')
    .replace(
      'congestion = "bbr"',
      'server = "n"\n[servers.n]\nreference = "nginx"\noptional = true',
    );
  const { browser, certificate, pages, servers } = readPlan(write(text));
  assert.deepEqual([browser, certificate], ['warm', 'rsa-chain']);
  assert.equal(pages[0]?.kind === 'folder' && pages[0].thinkTimes, false);
  assert.deepEqual(servers[1], { name: 'n', args: [], reference: 'nginx', optional: true });
});

test('several pages, a number of blocks that depends on the spread, and servers are read', () => {
  const text = good
    .replace('blocks = 3', 'blocks = { min = 10, max = 50, interval_percent = 5 }')
    .replace(
      '[page]\nspec = "page.toml"',
      '[[pages]]\nspec = "a b.toml"\n[[pages]]\nname = "own"\nfolder = "site"\nrequests = 4',
    )
    .replace(
      'congestion = "bbr"',
      'server = "slow"\n[servers.slow]\nargs = ["--limit", "x=1"]\n[servers.other]\ncommand = "o {page}"',
    );
  const plan = readPlan(write(text));
  assert.deepEqual(plan.blocks, { min: 10, max: 50, intervalPercent: 5 });
  assert.deepEqual(
    plan.pages.map(({ name }) => name),
    ['a-b', 'own'],
  );
  assert.deepEqual(plan.servers, [
    { name: 'pronghorn', args: [] },
    { name: 'slow', args: ['--limit', 'x=1'] },
    { name: 'other', args: [], command: 'o {page}' },
  ]);
  assert.equal(plan.arms[1]?.server, 'slow');
});

test('arms and designs have the initial window that they name', () => {
  const arm = readPlan(write(good.replace('name = "h3"', 'name = "h3"\ninitial_window = 32')))
    .arms[1];
  assert.equal(arm?.initialWindow, 32);
  const design =
    '[design]\nprotocols = ["h2", "h3"]\ncongestion = ["cubic"]\ninitial_window = 20\n';
  const { arms } = readPlan(write(good.replace(/\[\[arms\]\][^]*/, design)));
  assert.deepEqual(
    arms.map(({ name, initialWindow }) => [name, initialWindow]),
    [
      ['h2-cubic', 20],
      ['h3-cubic', 20],
    ],
  );
});

test("server without settings serves arms that set none, and TCP arms whose settings are the link's", () => {
  const server = '[servers.x]\ncommand = "x {page}"\n';
  const arms = good
    .replace('name = "h2"', 'name = "h2"\nserver = "x"\ncongestion = "bbr"\ninitial_window = 32')
    .replace(/protocol = "h3"[^]*/, `protocol = "h3"\nserver = "x"\nagainst = "h2"\n${server}`);
  assert.deepEqual(
    readPlan(write(arms)).arms.map(({ congestion, initialWindow }) => [congestion, initialWindow]),
    [
      ['bbr', 32],
      ['cubic', undefined],
    ],
  );
  const design = good.replace(
    /\[\[arms\]\][^]*/,
    `[design]\nprotocols = ["h2", "h3"]\nserver = "x"\n${server}`,
  );
  assert.deepEqual(
    readPlan(write(design)).arms.map(({ name }) => name),
    ['h2', 'h3'],
  );
});

test('profile without its jitter is another link beside the one with it', () => {
  const plan = readPlan(
    write(good.replace('"link.toml"', '"lte", { file = "lte", jitter = false, blocks = 2 }')),
  );
  assert.deepEqual(
    plan.profiles.map(({ name, jitter, blocks }) => [name, jitter, blocks]),
    [
      ['lte', undefined, undefined],
      ['lte-steady', false, 2],
    ],
  );
  assert.equal(plan.profiles[0]?.path, plan.profiles[1]?.path);
  assert.throws(
    () => readPlan(write(good.replace('"link.toml"', '{ file = "lte", jitter = "no" }'))),
    /jitter/,
  );
});

test('bundled profile is found by name', () => {
  const plan = readPlan(write(good.replace('"link.toml"', '"lte", "fibre"')));
  assert.deepEqual(
    plan.profiles.map(({ name }) => name),
    ['lte', 'fibre'],
  );
  assert.match(plan.profiles[0]?.text ?? '', /^name = "lte"$/m);
});

test('link may have its own number of blocks', () => {
  const plan = readPlan(
    write(good.replace('["link.toml"]', '[{ file = "link.toml", blocks = 2 }]')),
  );
  assert.deepEqual(plan.profiles, [
    { name: 'link', path: join(folder, 'link.toml'), text: 'name = "link"\n', blocks: 2 },
  ]);
});

test('demo plan is valid and names profiles that exist', () => {
  const plan = readPlan(join(packageFolder, 'plans/demo.toml'));
  assert.deepEqual(
    plan.profiles.map(({ name }) => name),
    ['fibre', 'lte'],
  );
  assert.deepEqual(
    plan.arms.map(({ protocol, congestion }) => `${protocol} ${congestion}`),
    ['h2 cubic', 'h3 cubic'],
  );
});

test('demo plan has enough blocks for verdicts, and two to spare', () => {
  const { profiles, pages, arms, blocks } = readPlan(join(packageFolder, 'plans/demo.toml'));
  const comparisons = METRICS.length * profiles.length * pages.length * (arms.length - 1);
  assert.equal(comparisons, 6);
  assert.ok(blocks.min >= blocksForVerdict(comparisons) + 2);
});

test('bench check loads each arm twice, in enough blocks to count', () => {
  const plan = readPlan(join(packageFolder, 'plans/bench-check.toml'));
  assert.deepEqual(
    plan.arms.filter(({ repeats }) => repeats !== undefined).map(({ repeats }) => repeats),
    ['h2', 'h3'],
  );
  assert.ok(plan.blocks.min >= MIN_CONTROL_BLOCKS);
  requireOptionalPeers(plan, ['h2-nghttpd', 'h2-nginx', 'h2-caddy', 'h3-nginx', 'h3-caddy']);
});

test('plan of peers has pages of three kinds, and enough blocks to judge its control', () => {
  const plan = readPlan(join(packageFolder, 'plans/peers.toml'));
  assert.deepEqual(
    plan.pages.map(({ name }) => name),
    ['cloudflare-15k', 'kiwee-like', 'kakhki-100x10k'],
  );
  assert.deepEqual(
    plan.arms.filter(({ repeats }) => repeats !== undefined).map(({ repeats }) => repeats),
    ['h2', 'h3'],
  );
  assert.ok(plan.blocks.min >= MIN_CONTROL_BLOCKS);
  requireOptionalPeers(plan, [
    'h2-nginx',
    'h2-h2o',
    'h2-nghttpd',
    'h3-nginx',
    'h3-h2o',
    'h3-caddy',
  ]);
});

/**
 * Asserts that third-party servers are compared with ours over the same protocol, and that a
 * machine without them can run the plan.
 */
function requireOptionalPeers(plan: Plan, names: readonly string[]): void {
  const others = plan.arms.filter(({ server }) => server !== OWN_SERVER);
  assert.deepEqual(
    others.map(({ name, protocol, comparedWith }) => [name, comparedWith === protocol]),
    names.map((name) => [name, true]),
  );
  assert.ok(
    others.every(
      ({ server }) => plan.servers.find(({ name }) => name === server)?.optional === true,
    ),
  );
}

const malformed: [what: string, from: string | RegExp, to: string, says: RegExp][] = [
  ['unknown key', 'blocks =', 'blcoks =', /unknown key `blcoks`; did you mean `blocks`\?/],
  [
    'unknown key beside good ones',
    'seed = 7',
    'seed = 7\nrepeat = 5',
    /unknown key `repeat`; valid: .*`blocks`/,
  ],
  [
    'unknown key of an arm',
    'congestion = "bbr"',
    'congestoin = "bbr"',
    /unknown key `arms\[1\]\.congestoin`; did you mean `congestion`\?/,
  ],
  [
    'unknown key of the page',
    'spec =',
    'specs =',
    /unknown key `page\.specs`; did you mean `spec`\?/,
  ],
  [
    'missing key',
    'blocks = 3',
    '',
    /`blocks`: is missing; it must be a whole number of blocks from 1 to 10000/,
  ],
  [
    'missing arms',
    /\[\[arms\]\][^]*/,
    '',
    /`arms`: is missing; a plan has tables headed \[\[arms\]\], or a \[design\]/,
  ],
  [
    'blocks that end before they begin',
    'blocks = 3',
    'blocks = { min = 9, max = 3, interval_percent = 5 }',
    /`blocks(\.min)?`: must be/,
  ],
  [
    'condition on no arm',
    'seed = 7',
    'fail_if = ["h4.median > 1 s"]',
    /`fail_if\[0\]` 'h4\.median > 1 s', column 1: unknown arm h4/,
  ],
  [
    'control of no arm',
    'seed = 7',
    'control = ["h4"]',
    /`control`: unknown arm "h4"; the plan has "h2", "h3"/,
  ],
  [
    'control whose second arm has the name of another one',
    /seed = 7([^]*)name = "h3"/,
    'control = ["h2"]$1name = "h2-again"',
    /`control`: the copy of "h2" would be named "h2-again", which is already an arm of the plan; give that arm another name/,
  ],
  [
    'control for a baseline',
    'seed = 7',
    'control = ["h2"]\nbaseline = "h2-again"',
    /`baseline`: unknown arm "h2-again"; the plan has "h2", "h3"/,
  ],
  [
    'restart after idle over QUIC',
    'congestion = "bbr"',
    'tcp_slow_start_after_idle = true',
    /`arms\[1\]\.tcp_slow_start_after_idle`: is a TCP setting, and the arm uses QUIC/,
  ],
  [
    'reference server with a command of its own',
    'congestion = "bbr"',
    '[servers.x]\nreference = "nginx"\ncommand = "nginx"',
    /`servers\.x\.reference`: excludes `args` and `command`: the lab knows how to start that server/,
  ],
  [
    'server of its own that is optional',
    'congestion = "bbr"',
    '[servers.x]\noptional = true',
    /`servers\.x\.optional`: is for `reference` only/,
  ],
  [
    'controller for the QUIC of a reference server',
    'congestion = "bbr"',
    'congestion = "bbr"\nserver = "x"\n[servers.x]\nreference = "caddy"',
    /arm h3: `congestion`: the lab cannot configure caddy for bbr over QUIC; remove `congestion`/,
  ],
  [
    'controller that a reference server lacks',
    'congestion = "bbr"',
    'congestion = "bbr"\nserver = "x"\n[servers.x]\nreference = "h2o"',
    /arm h3: `congestion`: the lab cannot configure h2o for bbr over QUIC; remove `congestion`/,
  ],
  [
    'think times of a page without a recording',
    'spec = "page.toml"',
    'spec = "page.toml"\nthink_times = true',
    /`page\.think_times`: is only for a `folder` that is a recording/,
  ],
  ['baseline of no arm', 'seed = 7', 'baseline = "h4"', /`baseline`: unknown arm "h4"/],
  [
    'unknown server',
    'congestion = "bbr"',
    'server = "caddy"',
    /`servers`: unknown server "caddy"; the plan has "pronghorn"/,
  ],
  [
    'server with a place that has no meaning',
    'congestion = "bbr"',
    'server = "x"\n[servers.x]\ncommand = "x {pgae}"',
    /`servers\.x\.command`: unknown placeholder \{pgae\}; did you mean `page`\?/,
  ],
  [
    'choice without a way to learn of HTTP/3',
    'protocol = "h3"',
    'protocol = "auto"',
    /`arms\[1\]\.discovery`: is required for the protocol "auto"/,
  ],
  [
    'session in clear',
    'protocol = "h3"',
    'protocol = "http"\nvisit = "resumed"',
    /`arms\[1\]\.visit`: must be "first"/,
  ],
  [
    'controller that a server is not told of',
    'congestion = "bbr"',
    'congestion = "bbr"\nserver = "x"\n[servers.x]\ncommand = "x {page} {initial_window}"',
    /`servers\.x\.command`: lacks \{congestion\}, so the arm h3 would not use bbr over QUIC; add the option with \{congestion\} to the command, or remove `congestion`/,
  ],
  [
    'initial window that a server is not told of',
    'congestion = "bbr"',
    'initial_window = 32\nserver = "x"\n[servers.x]\ncommand = "x {page} {congestion}"',
    /`servers\.x\.command`: lacks \{initial_window\}, so the arm h3 would not use a window of 32 over QUIC/,
  ],
  [
    'early data that a server is not told of',
    'congestion = "bbr"',
    'visit = "early-data"\nserver = "x"\n[servers.x]\ncommand = "x {page}"',
    /`servers\.x\.command`: lacks \{early_data\}, so the arm h3 would not use early data; .* or remove `visit`/,
  ],
  [
    'design with a controller that its server is not told of',
    /\[\[arms\]\][^]*/,
    '[design]\nprotocols = ["h2", "h3"]\ncongestion = ["cubic"]\nserver = "x"\n[servers.x]\ncommand = "x {page}"',
    /lacks \{congestion\}, so the arm h3-cubic would not use cubic over QUIC/,
  ],
  [
    'controller for a page that is loaded where it is',
    /profiles = .*\n\[page\]\nspec = "page.toml"/,
    '[page]\nurl = "https://a.test/"',
    /arm h3: `congestion`: cannot be set for a page with a `url`, which its own server decides; remove `congestion`, or capture the page/,
  ],
  [
    'servers for a page that is loaded where it is',
    /profiles = .*\n\[page\]\nspec = "page.toml"([^]*)\ncongestion = "bbr"/,
    '[page]\nurl = "https://a.test/"$1\n[servers.x]\nargs = []',
    /`servers`: a page with a `url` is served by its own server; remove `servers`/,
  ],
  [
    'both page and pages',
    '[page]',
    '[[pages]]\nspec = "b"\n[page]',
    /`page`: is missing; a plan has one \[page\]/,
  ],
  [
    'number out of range',
    'blocks = 3',
    'blocks = 0',
    /`blocks`: must be a whole number of blocks from 1 to 10000/,
  ],
  [
    'text for a number',
    'seed = 7',
    'seed = "7"',
    /`seed`: must be a whole number from 0 to 281474976710655/,
  ],
  [
    'unknown protocol',
    'protocol = "h3"',
    'protocol = "h4"',
    /`arms\[1\]\.protocol`: must be one of "http", "h1", "h2", "h3", "auto", not "h4"/,
  ],
  [
    'misspelt algorithm',
    '"bbr"',
    '"cubik"',
    /must be one of "cubic", "bbr", "newreno", not "cubik"; did you mean "cubic"\?/,
  ],
  [
    'name that is no file name',
    'name = "h3"',
    'name = "../h3"',
    /`arms\[1\]\.name`: must be 1 to 40 letters/,
  ],
  ['arm named twice', 'name = "h3"', 'name = "h2"', /`arms`: duplicate name "h2"/],
  [
    'profile without a file',
    '["link.toml"]',
    '[{ blocks = 2 }]',
    /`profiles\[0\]`: must be the name or path of a link profile/,
  ],
  [
    'profile that does not come with the lab',
    'link.toml',
    'lte-badd',
    /no profile lte-badd comes with the lab; a file of your own ends in \.toml; did you mean `lte-bad`\?/,
  ],
  ['no profiles', '["link.toml"]', '[]', /`profiles`: must name at least one link profile/],
  [
    'page with nothing',
    'spec = "page.toml"',
    '',
    /`page`: must have exactly one of `spec`, `folder` and `url`/,
  ],
  [
    'page with both',
    'spec = "page.toml"',
    'spec = "a"\nfolder = "site"',
    /`page`: must have exactly one of/,
  ],
  [
    'requests for a specification',
    'spec = "page.toml"',
    'spec = "a"\nrequests = 4',
    /`page\.requests`: is for `folder` only/,
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

test('second visit over a link that gives the client a new address is rejected', () => {
  const error = errorFor(/"link.toml"([^]*)against = "h2"/, '"handover"$1visit = "resumed"');
  assert.equal(error.exitCode, 65);
  assert.match(
    error.line(),
    /arm h3: `visit`: the profile handover gives the client a new address.*; use `visit = "first"`/,
  );
  assert.deepEqual(readPlan(write(good.replace('link.toml', 'handover'))).profiles.length, 1);
});

test('missing profile is missing input', () => {
  const error = errorFor('link.toml', 'lnik.toml');
  assert.equal(error.exitCode, 66);
  assert.match(error.line(), /lnik\.toml does not exist; check the path/);
});

test('missing page folder is missing input', () => {
  const error = errorFor('spec = "page.toml"', 'folder = "no-site"');
  assert.equal(error.exitCode, 66);
  assert.match(error.line(), /cannot find the folder .*no-site/);
});

test('missing plan is missing input', () => {
  assert.throws(() => readPlan(join(folder, 'nothing.toml')), { exitCode: 66 });
});

test('page specification with too few bytes for its resources is malformed', () => {
  const path = join(folder, 'page.toml');
  writeFileSync(
    path,
    'name = "p"\nseed = 1\nhtml_bytes = 2000\n[[resources]]\nkind = "image"\ncount = 10\ntotal_bytes = 5000\n',
  );
  assert.throws(
    () => readPageSpec(path),
    /`resources\[0\]\.total_bytes`: must be at least 2048 for each resource/,
  );
});

test('a campaign has the selected profiles, in the order of the plan', () => {
  const plan = readPlan(join(packageFolder, 'plans', 'reproduce-kiwee.toml'));
  const choose = (...profiles: string[]): string[] =>
    selectProfiles(plan, { profiles, resume: false, out: folder }).profiles.map(({ name }) => name);
  assert.deepEqual(choose('lte', 'dc-near'), ['dc-near', 'lte']);
  assert.deepEqual(
    choose(),
    plan.profiles.map(({ name }) => name),
  );
  assert.throws(
    () => choose('lte', 'lte-bat'),
    (error) =>
      error instanceof LabError &&
      error.message.includes('no profile "lte-bat"') &&
      (error.hint ?? '').includes('lte-bad'),
  );
});
