import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';
import { browserArguments } from '../src/run/browser.js';
import { lastWord, linkCommand } from '../src/run/link-command.js';
import type { LoadJob, WarmPage } from '../src/load/job.js';
import type { Arm } from '../src/campaign/plan.js';
import {
  countRequests,
  serverTimeout,
  readCounters,
  serverCommand,
  shellWords,
  unknownPlaceholder,
} from '../src/run/server-command.js';
import { warmPageFor } from '../src/run/warm-page.js';

test('words joined for a shell are split into the same words by a shell', () => {
  const words = ['plain', 'with space', "quo'te", '$HOME', '', 'a"b', '--flag=ü', '\\', '*'];
  const run = spawnSync('sh', ['-c', `printf '%s\\n' ${shellWords(words)}`], { encoding: 'utf8' });
  assert.equal(run.stdout, `${words.join('\n')}\n`);
});

const arm: Arm = {
  name: 'a',
  protocol: 'h3',
  congestion: 'newreno',
  visit: 'first',
  server: 'pronghorn',
};
const server = {
  pronghorn: '/p',
  spec: { name: 'pronghorn', args: ['--limit', 'a=b c'] },
  arm,
  pageFolder: '/page',
  isRecording: false,
  address: '10.77.0.2',
  certificate: { certPath: '/c.pem', keyPath: '/k.pem', spki: 's' },
  serverTimeoutSeconds: 90,
  thinkTimes: false,
  folder: '/load',
};

test('browser runs behind the link and the server before it, with one congestion controller', () => {
  const command = linkCommand({
    pronghorn: '/p',
    profilePath: '/l.toml',
    seed: 9,
    congestion: 'newreno',
    slowStartAfterIdle: false,
    reportPath: '/r.json',
    far: serverCommand(server),
    farPort: 443,
    near: ['node', 'load-one.js'],
  });
  const text = command.join(' ');
  assert.match(
    text,
    /^\/p link \/l\.toml --seed 9 --tcp-congestion reno --tcp-slow-start-after-idle off --report \/r\.json --far /,
  );
  assert.match(text, /--far-ready 443 -- node load-one\.js$/);
  assert.match(
    text,
    /serve \/page --listen 10\.77\.0\.2:443 --cert \/c\.pem --key \/k\.pem --congestion newreno/,
  );
  assert.match(text, / --early-data off .* --limit 'a=b c' /);
});

test('both transports start with the initial window of the arm', () => {
  const own = serverCommand({ ...server, arm: { ...arm, initialWindow: 32 } });
  assert.match(own, / --initial-window 32 /);
  assert.match(serverCommand(server), / --initial-window 10 /);
  const spec = { name: 'other', args: [], command: 'other --iw {initial_window}' };
  assert.equal(serverCommand({ ...server, spec }), 'other --iw 10');
  const link = {
    pronghorn: '/p',
    profilePath: '/l.toml',
    seed: 9,
    congestion: 'cubic',
    slowStartAfterIdle: true,
    reportPath: '/r.json',
  } as const;
  const command = linkCommand({
    ...link,
    initialWindow: 32,
    far: own,
    farPort: 443,
    near: ['node'],
  });
  assert.match(command.join(' '), / --tcp-initial-window 32 --tcp-slow-start-after-idle on /);
  assert.ok(!command.includes('--no-jitter'));
  const steady = linkCommand({ ...link, jitter: false, far: own, farPort: 443, near: ['node'] });
  assert.match(steady.join(' '), /^\/p link \/l\.toml --no-jitter /);
});

test('server enables early data and cleartext only for arms that use them', () => {
  const early = serverCommand({ ...server, arm: { ...arm, visit: 'early-data' } });
  assert.match(early, / --early-data safe /);
  assert.ok(!early.includes('http://'));
  assert.match(
    serverCommand({ ...server, arm: { ...arm, protocol: 'http' } }),
    / --listen http:\/\/10\.77\.0\.2:80 /,
  );
});

test('recording is replayed with the same options, and with think times where configured', () => {
  const replay = serverCommand({ ...server, isRecording: true });
  assert.match(replay, /^\/p replay \/page --listen /);
  assert.ok(!replay.includes('--think-times'));
  assert.match(
    serverCommand({ ...server, isRecording: true, thinkTimes: true }),
    / --think-times /,
  );
});

test("server time-outs exceed the lab's, and arguments from the plan take precedence", () => {
  const patience = serverTimeout(600);
  assert.ok(patience > 600 && patience <= 3600, String(patience));
  const limits = [...serverCommand(server).matchAll(/--limit (\w+)=(\S+)/g)].map(
    ([, name, value]) => [name, value],
  );
  const waiting = ['handshake', 'idle', 'head', 'body', 'response'].map((what) => [
    `${what}_timeout`,
    '90s',
  ]);
  assert.deepEqual(limits, [
    ...waiting,
    ['body_bytes_per_second', '0'],
    ['response_bytes_per_second', '0'],
  ]);
  const spec = {
    name: 'impatient',
    args: ['--idle-timeout', '5', '--limit', 'response_timeout=7s'],
  };
  const own = serverCommand({ ...server, spec });
  assert.ok(!own.includes('idle_timeout='));
  assert.ok(own.indexOf('response_timeout=7s') > own.indexOf('response_timeout=90s'));
});

test("another server's command line is filled in, and an unknown placeholder is reported", () => {
  const command = 'other --root {page} --at {address}:{port} "{cert}" -t {timeout_seconds}';
  const spec = { name: 'other', args: [], command };
  const line = serverCommand({ ...server, spec, pageFolder: '/my page' });
  assert.equal(line, `other --root '/my page' --at 10.77.0.2:443 "/c.pem" -t 90`);
  assert.equal(unknownPlaceholder(command), undefined);
  assert.equal(unknownPlaceholder('other {page} {prot}'), 'prot');
});

const job: LoadJob = {
  chromium: '/chromium',
  protocol: 'h3',
  visit: 'first',
  url: 'https://bench.test/',
  origins: ['bench.test:443', 'cdn.bench.test:8443'],
  serverAddress: '10.77.0.2',
  resolverAddress: '10.77.0.1',
  spki: 'spki',
  timeoutSeconds: 1,
  confinement: { sandbox: true },
  expected: { kind: 'count', requests: 1 },
  lookMs: 500,
  watched: false,
  folder: '/f',
};

test('each protocol disables the other ones in the browser', () => {
  const flags = (protocol: Arm['protocol']): string[] =>
    browserArguments({ ...job, protocol }, undefined);
  assert.ok(flags('h3').includes('--origin-to-force-quic-on=bench.test:443,cdn.bench.test:8443'));
  assert.ok(!flags('h3').includes('--disable-quic'));
  assert.ok(flags('h2').includes('--disable-quic') && !flags('h2').includes('--disable-http2'));
  assert.ok(!flags('auto').includes('--disable-quic'));
  assert.ok(flags('auto').includes('--origin-to-force-quic-on=bench.test:1,cdn.bench.test:1'));
  const rules =
    '--host-resolver-rules=MAP bench.test:443 10.77.0.2:443, MAP cdn.bench.test:8443 10.77.0.2:443, MAP * ~NOTFOUND';
  for (const protocol of ['http', 'h1', 'h2', 'h3', 'auto'] as const)
    assert.ok(flags(protocol).includes(rules));
  for (const protocol of ['http', 'h1'] as const) {
    assert.ok(
      flags(protocol).includes('--disable-quic') && flags(protocol).includes('--disable-http2'),
    );
  }
});

test("page that warms the browser uses the arm's protocol and its own server address, and leaves no state about the server", () => {
  const certificate = server.certificate;
  const pageOf = (protocol: Arm['protocol'], own = true): WarmPage =>
    warmPageFor('/p', '/warm', { ...arm, protocol }, own ? certificate : undefined);
  const flags = (protocol: Arm['protocol']): string =>
    browserArguments({ ...job, protocol, warmPage: pageOf(protocol) }, undefined).join(' ');
  for (const protocol of ['h1', 'h2', 'h3'] as const) {
    const { command, origin = '' } = pageOf(protocol);
    assert.match(
      command.join(' '),
      /^\/p serve \/warm .*--listen 127\.0\.0\.1:4443 --cert \/c\.pem/,
    );
    assert.ok(flags(protocol).includes(`MAP ${origin} 127.0.0.1:4443, MAP * ~NOTFOUND`));
    // Neither the host nor the port nor the site of the page.
    assert.ok(
      job.origins.every((each) => !each.endsWith(':4443')) && !origin.includes('bench.test'),
    );
  }
  assert.match(
    flags('h3'),
    /--origin-to-force-quic-on=bench\.test:443,cdn\.bench\.test:8443,warm\.test:4443 ?/,
  );
  // An `auto` load has to discover for itself that QUIC works, and a browser that trusts only
  // public servers rejects ours.
  for (const { command, origin } of [pageOf('auto'), pageOf('http'), pageOf('h2', false)]) {
    assert.equal(origin, undefined);
    assert.ok(command.includes('http://127.0.0.1:0'));
  }
});

test('DNS is queried only where an HTTPS record is expected', () => {
  const rules = (discovery: NonNullable<LoadJob['discovery']>): string[] =>
    browserArguments({ ...job, protocol: 'auto', discovery }, undefined).filter((flag) =>
      flag.includes('resolver'),
    );
  assert.equal(rules('alt-svc').length, 1);
  assert.equal(rules('https-record').length, 0);
});

test('NetLog is written only where requested', () => {
  const logs = (args: readonly string[]): string[] =>
    args.filter((argument) => argument.includes('net-log'));
  assert.deepEqual(logs(browserArguments(job, undefined)), []);
  assert.deepEqual(logs(browserArguments(job, '/n.json')), ['--log-net-log=/n.json']);
});

test('access log is counted by protocol', () => {
  const log = [
    'listening on https://10.77.0.2:443 (h1, h2, h3)',
    '2026-11-21T20:43:00Z 10.77.0.1:5555 HTTP/3 GET / 200 1234 0.5ms',
    '2026-11-21T20:43:00Z 10.77.0.1:5555 HTTP/3 GET /a.css 200 1234 0.5ms',
    '2026-11-21T20:43:01Z 10.77.0.1:5556 HTTP/1.1 GET /b 404 12 0.1ms',
    // Warm-ups, from the server's own end.
    '2026-11-21T20:43:00Z 10.77.0.2:5555 HTTP/3 GET /pronghorn-lab-warm-up 404 12 0.1ms',
    '2026-11-21T20:43:00Z 10.77.0.2:5555 HTTP/2 GET /pronghorn-lab-warm-up 404 12 0.1ms',
    'error: something HTTP/3 GET',
  ].join('\n');
  assert.deepEqual(countRequests(log), { 'HTTP/3': 2, 'HTTP/1.1': 1 });
});

test('last error line represents an output', () => {
  assert.equal(lastWord('one\nerror: port taken\nbye\n'), 'error: port taken');
  assert.equal(lastWord('one\ntwo\n\n'), 'two');
  assert.equal(lastWord(''), 'no output');
});

test('counters of our server are read, and are undefined for a killed or another server', () => {
  const counters =
    '{"tcp_accepted":6,"quic_connected":1,"tcp_resumed":5,"quic_resumed":1,"requests_early":2,"quic_migrations":0}';
  assert.deepEqual(readCounters(`listening\n${counters}\n`), {
    tcpConnections: 6,
    quicConnections: 1,
    tcpResumed: 5,
    quicResumed: 1,
    earlyRequests: 2,
    quicMigrations: 0,
  });
  assert.equal(readCounters(counters.slice(0, 40)), undefined);
  assert.equal(readCounters('nothing of the kind'), undefined);
});
