import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';
import { browserArguments } from '../src/browser.js';
import { lastWord, linkCommand, shellWords } from '../src/link-command.js';
import { countRequests, serverCommand } from '../src/server-command.js';

test('words that were joined for a shell are split by it into the same words', () => {
  const words = ['plain', 'with space', "quo'te", '$HOME', '', 'a"b', '--flag=ü', '\\', '*'];
  const run = spawnSync('sh', ['-c', `printf '%s\\n' ${shellWords(words)}`], { encoding: 'utf8' });
  assert.equal(run.stdout, `${words.join('\n')}\n`);
});

test('link runs the browser behind it and the server before it with one algorithm', () => {
  const certificate = { certPath: '/c.pem', keyPath: '/k.pem', spki: 's' };
  const far = serverCommand({
    pronghorn: '/p',
    pageFolder: '/page',
    address: '10.77.0.2',
    certificate,
    congestion: 'newreno',
  });
  const command = linkCommand({
    pronghorn: '/p',
    profilePath: '/l.toml',
    seed: 9,
    congestion: 'newreno',
    reportPath: '/r.json',
    far,
    near: ['node', 'load-one.js'],
  });
  const text = command.join(' ');
  assert.match(text, /^\/p link \/l\.toml --seed 9 --tcp-congestion reno --report \/r\.json --far /);
  assert.match(text, /--far-ready 443 -- node load-one\.js$/);
  assert.match(text, /serve \/page --listen 10\.77\.0\.2:443 --cert \/c\.pem --key \/k\.pem --congestion newreno/);
});

test('each protocol leaves the browser no other one', () => {
  const flags = (protocol: 'h1' | 'h2' | 'h3'): string[] => browserArguments(protocol, '10.77.0.2', 'spki');
  assert.ok(flags('h3').includes('--origin-to-force-quic-on=bench.test:443'));
  assert.ok(!flags('h3').includes('--disable-quic'));
  assert.ok(flags('h2').includes('--disable-quic') && !flags('h2').includes('--disable-http2'));
  assert.ok(flags('h1').includes('--disable-quic') && flags('h1').includes('--disable-http2'));
  for (const protocol of ['h1', 'h2', 'h3'] as const) {
    assert.ok(flags(protocol).includes('--host-resolver-rules=MAP bench.test 10.77.0.2, MAP * ~NOTFOUND'));
  }
});

test('NetLog is written only where it is asked for', () => {
  const logs = (args: readonly string[]): string[] => args.filter((argument) => argument.includes('net-log'));
  assert.deepEqual(logs(browserArguments('h3', '10.77.0.2', 'spki')), []);
  assert.deepEqual(logs(browserArguments('h3', '10.77.0.2', 'spki', '/n.json')), ['--log-net-log=/n.json']);
});

test('access log is counted by protocol', () => {
  const log = [
    'listening on https://10.77.0.2:443 (h1, h2, h3)',
    '2026-11-21T20:43:00Z 10.77.0.1:5555 HTTP/3 GET / 200 1234 0.5ms',
    '2026-11-21T20:43:00Z 10.77.0.1:5555 HTTP/3 GET /a.css 200 1234 0.5ms',
    '2026-11-21T20:43:01Z 10.77.0.1:5556 HTTP/1.1 GET /b 404 12 0.1ms',
    'error: something HTTP/3 GET',
  ].join('\n');
  assert.deepEqual(countRequests(log), { 'HTTP/3': 2, 'HTTP/1.1': 1 });
});

test('last error line stands for an output', () => {
  assert.equal(lastWord('one\nerror: port taken\nbye\n'), 'error: port taken');
  assert.equal(lastWord('one\ntwo\n\n'), 'two');
  assert.equal(lastWord(''), 'no output');
});
