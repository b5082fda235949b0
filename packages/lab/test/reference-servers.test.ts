import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { LabError } from '../src/io/errors.js';
import { partnerOf, withPartners } from '../src/compare/partners.js';
import { resolvePlan } from '../src/campaign/skipped-arms.js';
import type { Arm, Plan, Protocol, ServerSpec } from '../src/campaign/plan.js';
import {
  findReference,
  referenceCommand,
  isConfigurable,
  type Reference,
} from '../src/run/reference-servers.js';
import { WarmUpHistory, warmUpCommands, warmUpProtocols } from '../src/run/warm-up.js';

const folder = mkdtempSync(join(tmpdir(), 'lab-reference-test-'));
after(() => {
  rmSync(folder, { recursive: true });
});

const arm = (
  name: string,
  protocol: Protocol,
  server = 'pronghorn',
  more: Partial<Arm> = {},
): Arm => ({
  ...{ name, protocol, server, congestion: 'cubic', visit: 'first' },
  ...more,
});
const nginx: Reference = {
  name: 'nginx',
  path: '/sbin/nginx',
  version: '1.22.1',
  protocols: ['http', 'h1', 'h2'],
};

/** Returns the relevant part of a plan. */
function planOf(arms: Arm[], servers: Partial<ServerSpec>[]): Plan {
  const specs = [
    { name: 'pronghorn', args: [] },
    ...servers.map((each) => ({ name: 'x', args: [], ...each })),
  ];
  return { arms, servers: specs, baseline: 'h2' } as unknown as Plan;
}

const arms = [
  arm('h2', 'h2'),
  arm('h3', 'h3', 'pronghorn', { comparedWith: 'h2' }),
  arm('h2-x', 'h2', 'x', { comparedWith: 'h2' }),
  arm('h3-x', 'h3', 'x', { comparedWith: 'h3' }),
  arm('h1-x', 'h1', 'x', { comparedWith: 'h3-x' }),
  arm('h3-x-again', 'h3', 'x', { repeats: 'h3-x' }),
];

test('arm whose optional server lacks its protocol is skipped with its control and a reason', () => {
  const { plan, leftOut, references } = resolvePlan(
    planOf(arms, [{ reference: 'nginx', optional: true }]),
    () => nginx,
  );
  assert.deepEqual(
    plan.arms.map(({ name, comparedWith }) => [name, comparedWith]),
    [
      ['h2', undefined],
      ['h3', 'h2'],
      ['h2-x', 'h2'],
      ['h1-x', null],
    ],
  );
  assert.deepEqual(
    leftOut.map(({ arm: name, reason }) => [name, reason]),
    ['h3-x', 'h3-x-again'].map((name) => [name, 'nginx 1.22.1 has no HTTP/3']),
  );
  assert.deepEqual([...references.keys()], ['x']);
});

test('arm whose partner is skipped is compared with no arm, not with the baseline of another kind of visit', () => {
  const resumed = { visit: 'resumed' } as const;
  const third = arm('h3', 'h3', 'pronghorn', { ...resumed, comparedWith: 'h2-x' });
  const own = [arm('h2', 'h2'), arm('h2-x', 'h2', 'x', resumed), third];
  const plan = {
    ...planOf([], [{ reference: 'nginx', optional: true }]),
    arms: withPartners(own, 'h2', 'plan.toml'),
  };
  const pairs = ({ arms: those }: Pick<Plan, 'arms'>): (string | undefined)[] =>
    those.map((each) => partnerOf(each, those, 'h2'));
  assert.deepEqual(pairs(plan), [undefined, undefined, 'h2-x']);
  const here = resolvePlan(plan, () => {
    throw new LabError(69, 'the server nginx is not installed', 'install it');
  });
  assert.deepEqual(pairs(here.plan), [undefined, undefined]);
  // In campaigns from before arms had partners, each is compared with the baseline.
  assert.deepEqual(pairs({ arms: [arm('h2', 'h2'), arm('h3', 'h3')] }), [undefined, 'h2']);
});

test('missing server skips its arms if it is optional, and otherwise ends the campaign', () => {
  const missing = (): Reference => {
    throw new LabError(69, 'the server nginx is not installed', 'install it');
  };
  const optional = resolvePlan(planOf(arms, [{ reference: 'nginx', optional: true }]), missing);
  assert.deepEqual(
    optional.plan.arms.map(({ name }) => name),
    ['h2', 'h3'],
  );
  assert.throws(
    () => resolvePlan(planOf(arms, [{ reference: 'nginx' }]), missing),
    /nginx is not installed/,
  );
  assert.throws(
    () => resolvePlan(planOf(arms, [{ reference: 'nginx' }]), () => nginx),
    (thrown) =>
      thrown instanceof LabError &&
      thrown.line().startsWith('error: arm h3-x: nginx 1.22.1 has no HTTP/3; '),
  );
  const base = { ...planOf(arms, [{ reference: 'nginx', optional: true }]), baseline: 'h3-x' };
  assert.throws(() => resolvePlan(base, () => nginx), /the baseline h3-x cannot be skipped/);
});

test('reference server is the program that its variable names, with the protocols that it was built with', () => {
  const path = join(folder, 'nginx');
  writeFileSync(
    path,
    '#!/bin/sh\necho "nginx version: nginx/1.29.4" >&2\necho "--with-http_v3_module" >&2\n',
  );
  chmodSync(path, 0o755);
  const before = process.env.NGINX;
  try {
    process.env.NGINX = path;
    assert.deepEqual(findReference('nginx'), {
      name: 'nginx',
      path,
      version: '1.29.4',
      protocols: ['http', 'h1', 'h2', 'h3'],
    });
    process.env.NGINX = join(folder, 'nothing');
    assert.throws(() => findReference('nginx'), /nothing does not exist or is not executable/);
  } finally {
    if (before === undefined) delete process.env.NGINX;
    else process.env.NGINX = before;
  }
});

test('h2o has HTTP/3 from version 2.3 on', () => {
  const path = join(folder, 'h2o');
  const before = process.env.H2O;
  process.env.H2O = path;
  try {
    for (const [version, has] of [
      ['2.2.5', false],
      ['2.3.0-DEV@0f62e5a', true],
      ['2.10.0', true],
      ['10.0.0', true],
    ] as const) {
      writeFileSync(
        path,
        `#!/bin/sh\necho "h2o version ${version}"\necho "OpenSSL: OpenSSL 2.1.0"\n`,
      );
      chmodSync(path, 0o755);
      const found = findReference('h2o');
      assert.equal(found.version, version);
      assert.equal(found.protocols.includes('h3'), has, version);
    }
  } finally {
    if (before === undefined) delete process.env.H2O;
    else process.env.H2O = before;
  }
});

test('only h2o gets a controller and an initial window over QUIC', () => {
  assert.ok(isConfigurable('h2o', 'congestion') && isConfigurable('h2o', 'initial_window', 'bbr'));
  assert.ok(
    isConfigurable('h2o', 'congestion', 'cubic') && isConfigurable('h2o', 'congestion', 'newreno'),
  );
  assert.ok(!isConfigurable('h2o', 'congestion', 'bbr') && !isConfigurable('h2o', 'early_data'));
  for (const name of ['nghttpd', 'nginx', 'caddy'] as const)
    assert.ok(!isConfigurable(name, 'congestion', 'cubic'), name);
});

test('reference servers get the certificate, the page and time-outs longer than a load', () => {
  const server = {
    ...{
      pronghorn: '/p',
      arm: arm('h3', 'h3', 'x'),
      pageFolder: '/page',
      isRecording: false,
      thinkTimes: false,
    },
    ...{ address: '10.77.0.2', serverTimeoutSeconds: 120, folder, spec: { name: 'x', args: [] } },
    certificate: { certPath: '/c.pem', keyPath: '/k.pem', spki: 's' },
  };
  const http3: Reference = { ...nginx, version: '1.25.0', protocols: ['h1', 'h2', 'h3'] };
  referenceCommand(server, http3);
  const older = readFileSync(join(folder, 'server/nginx.conf'), 'utf8');
  assert.match(older, /listen 10\.77\.0\.2:443 ssl http2;/);
  assert.match(older, /listen 10\.77\.0\.2:443 quic reuseport;/);
  assert.match(older, /quic_gso on; http3_stream_buffer_size 1m;/);
  assert.match(older, /ssl_certificate \/c\.pem; ssl_certificate_key \/k\.pem;/);
  for (const name of ['client_header', 'client_body', 'send', 'keepalive'])
    assert.ok(older.includes(`${name}_timeout 120s;`));
  referenceCommand(server, { ...nginx, version: '1.25.1' });
  const newer = readFileSync(join(folder, 'server/nginx.conf'), 'utf8');
  assert.match(newer, /listen 10\.77\.0\.2:443 ssl;\nhttp2 on;/);
  assert.ok(!newer.includes('quic'));
  referenceCommand(server, { name: 'caddy', path: '/caddy', version: '2', protocols: ['h3'] });
  assert.match(
    readFileSync(join(folder, 'server/Caddyfile'), 'utf8'),
    /idle 120s[^]*tls \/c\.pem \/k\.pem[^]*root \* \/page/,
  );
  const h2o: Reference = { name: 'h2o', path: '/h2o', version: '2.3.0', protocols: ['h2', 'h3'] };
  const h2oConfig = (reference: Reference, more: Partial<Arm> = {}): string => {
    referenceCommand({ ...server, arm: { ...server.arm, ...more } }, reference);
    return readFileSync(join(folder, 'server/h2o.conf'), 'utf8');
  };
  const both = h2oConfig(h2o);
  assert.match(both, /certificate-file: "\/c\.pem"\n *key-file: "\/k\.pem"[^]*file\.dir: "\/page"/);
  assert.match(both, /^listen:\n {2}<<: \*tls\n {2}type: quic\n {2}cc: cubic\nhosts:/m);
  for (const name of ['handshake', 'http1-request', 'http1-request-io', 'http2-idle', 'http3-idle'])
    assert.ok(both.includes(`\n${name}-timeout: 120\n`), name);
  assert.match(
    h2oConfig(h2o, { congestion: 'newreno', initialWindow: 32 }),
    /type: quic\n {2}cc: reno\n {2}initcwnd: 32\n/,
  );
  // HTTP/3 directives would be errors in that version.
  assert.doesNotMatch(
    h2oConfig({ ...h2o, version: '2.2.5', protocols: ['h2'] }),
    /quic|http3|alt-svc/,
  );
});

test('server is warmed over each of its protocols, the same for all arms', () => {
  const own = { name: 'pronghorn', args: [] };
  const other = { name: 'x', args: [], command: 'x {page}' };
  const warmed = (spec: ServerSpec, of: Arm, reference?: Reference): string[] =>
    warmUpProtocols(spec, arms, reference, of);
  for (const each of arms.slice(0, 2)) assert.deepEqual(warmed(own, each), ['h2', 'h3']);
  // The port without TLS exists only for the arm without TLS.
  assert.deepEqual(warmUpProtocols(own, [...arms, arm('c', 'http')], undefined, arm('c', 'http')), [
    'http',
    'h2',
    'h3',
  ]);
  assert.deepEqual(warmUpProtocols(own, [...arms, arm('c', 'http')], undefined, arm('h2', 'h2')), [
    'h2',
    'h3',
  ]);
  for (const each of arms.slice(2)) assert.deepEqual(warmed(other, each), ['h1', 'h2', 'h3']);
  assert.deepEqual(
    warmed({ name: 'x', args: [], reference: 'nginx' }, arm('h2-x', 'h2', 'x'), nginx),
    ['h1', 'h2'],
  );
  assert.deepEqual(
    warmUpProtocols(other, [arm('a', 'auto', 'x')], undefined, arm('a', 'auto', 'x')),
    ['h2', 'h3'],
  );
});

test("warm-up requests a missing file at the server's own address", () => {
  const own = { name: 'pronghorn', args: [] };
  const [line = ''] = warmUpCommands('/my program', own, ['h3'], 'bench.test', new WarmUpHistory());
  const words = spawnSync('sh', ['-c', `printf '%s\\n' ${line}`], { encoding: 'utf8' })
    .stdout.trim()
    .split('\n');
  assert.deepEqual(words.slice(0, 4), ['/my program', 'get', '--http', '3']);
  assert.equal(words[words.indexOf('--connect-to') + 1], '10.77.0.2:443');
  assert.equal(words.at(-1), 'https://bench.test/pronghorn-lab-warm-up');
});

/**
 * Runs a warm-up of a plan's own server with a script instead of `pronghorn`, and returns the
 * number of tries.
 */
function tried(
  name: string,
  script: string,
  warmed = new WarmUpHistory(),
): { status: number | null; times: number } {
  const [program, count] = [join(folder, name), join(folder, `${name}-count`)];
  writeFileSync(program, `#!/bin/sh\necho "$*" >> ${count}\n${script}\n`);
  chmodSync(program, 0o755);
  const [line = ''] = warmUpCommands(
    program,
    { name: 'x', args: [], command: 'x' },
    ['h3'],
    'bench.test',
    warmed,
  );
  const { status } = spawnSync('sh', ['-c', line]);
  const lines = readFileSync(count, 'utf8').trim().split('\n');
  for (const each of lines)
    assert.match(each, /^get --http 3 .* https:\/\/bench\.test\/pronghorn-lab-warm-up$/);
  return { status, times: lines.length };
}

test('warm-up of a server that answers late is retried until it answers', () => {
  // It has no UDP port yet: each try ends at once.
  const late = join(folder, 'late-count');
  assert.deepEqual(tried('late', `[ $(wc -l < ${late}) -ge 4 ]`), { status: 0, times: 4 });
});

test('warm-up of a silent server is retried for a while, and tried once if it was silent in the preflight', () => {
  const silent = new WarmUpHistory();
  silent.add('x', [
    { protocol: 'h2', ok: true },
    { protocol: 'h3', ok: false },
  ]);
  assert.deepEqual(tried('never', 'exit 1', silent), { status: 1, times: 1 });
  assert.deepEqual(
    [silent.isSilent('x', 'h3'), silent.isSilent('x', 'h2'), silent.isSilent('x', 'h1')],
    [true, false, false],
  );
  assert.equal(silent.isSilent('y', 'h3'), false);
  // It was late once, so it is waited for again.
  silent.add('x', [{ protocol: 'h3', ok: true }]);
  silent.add('x', [{ protocol: 'h3', ok: false }]);
  assert.equal(silent.isSilent('x', 'h3'), false);
  // A clock that advances four seconds per reading simulates the wait.
  const clock = join(folder, 'date');
  writeFileSync(
    clock,
    `#!/bin/sh\nn=$(cat ${clock}-n 2>/dev/null || echo 0)\necho $((n + 4)) > ${clock}-n\necho $n\n`,
  );
  chmodSync(clock, 0o755);
  const path = process.env.PATH;
  process.env.PATH = `${folder}:${path ?? ''}`;
  try {
    const { status, times } = tried('gone', 'exit 1');
    assert.ok(status === 1 && times === 3, `${status} after ${times}`);
  } finally {
    process.env.PATH = path;
  }
});
