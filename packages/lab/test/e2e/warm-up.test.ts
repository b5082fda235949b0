import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { findPronghorn } from '../../src/run/programs.js';
import type { Sample } from '../../src/samples/sample.js';
import { packageFolder } from '../places.js';
import { faultsOf, lab, reportOfQuietMachine, samplesOf } from './lab.js';

/**
 * A plan's own servers that answer late before a load, over one protocol only, or not at all: each
 * load has to be warm or reported as cold.
 */

const folder = mkdtempSync(join(tmpdir(), 'lab-warm-up-'));
// The browser's user needs access.
chmodSync(folder, 0o755);
after(() => {
  rmSync(folder, { recursive: true });
});

/**
 * A front for a server: `late` opens its UDP port two seconds after its TCP port, `udp-deaf` never
 * answers UDP from its own end of the link, where warm-ups come from, and `deaf` answers nothing
 * from there.
 */
const FRONT = `
import { spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { createServer, connect } from 'node:net';
const [mode, address, port, ...command] = process.argv.slice(2);
const server = spawn(command[0], command.slice(1), { stdio: 'inherit' });
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { server.kill(); process.exit(0); });
const isDeaf = (from) => mode !== 'late' && from === address;
createServer((client) => {
  client.on('error', () => undefined);
  if (mode === 'deaf' && isDeaf(client.remoteAddress)) return client.destroy();
  const back = connect(8444, '127.0.0.1').on('error', () => client.destroy());
  client.on('close', () => back.destroy());
  back.on('close', () => client.destroy());
  client.pipe(back).pipe(client);
}).listen(Number(port), address);
setTimeout(() => {
  const front = createSocket('udp4');
  const ways = new Map();
  front.on('message', (message, { address: from, port: at }) => {
    if (isDeaf(from)) return;
    let way = ways.get(at);
    if (way === undefined) {
      way = createSocket('udp4').on('message', (answer) => front.send(answer, at, from));
      ways.set(at, way);
    }
    way.send(message, 8444, '127.0.0.1');
  });
  front.bind(Number(port), address);
}, mode === 'late' ? 2000 : 0);
`;

function campaign(mode: string): { samples: Sample[]; quiet: string } {
  const front = join(folder, 'front.mjs');
  writeFileSync(front, FRONT);
  const program = findPronghorn(process.env.PRONGHORN).path;
  const serve = `${program} serve {page} --listen 127.0.0.1:8444 --cert {cert} --key {key}`;
  const command = `${process.execPath} ${front} ${mode} {address} {port} ${serve}`;
  const arms = ['h2', 'h3'].map(
    (name) => `[[arms]]\nname = "${name}"\nprotocol = "${name}"\nserver = "front"\n`,
  );
  const plan = join(folder, `${mode}.toml`);
  const [mild, page] = ['mild.toml', 'page.toml'].map((name) =>
    join(packageFolder, 'test/fixtures', name),
  );
  writeFileSync(
    plan,
    `name = "${mode}"\nseed = 5\nblocks = 1\nprofiles = ["${mild ?? ''}"]\n[page]\nspec = "${page ?? ''}"\n${arms.join('')}` +
      `[servers.front]\ncommand = "${command}"\n`,
  );
  const out = join(folder, mode);
  const run = lab(['run', plan, '--out', out]);
  const samples = samplesOf(out);
  assert.equal(samples.length, 4, run.stderr);
  for (const { outcome, reason } of samples) assert.equal(outcome, 'completed', reason);
  return { samples, quiet: reportOfQuietMachine(out).stdout };
}

const answered = ({ warmUps = [] }: Sample): string =>
  warmUps.map(({ protocol, ok }) => `${protocol} ${ok}`).join();

test('server with late UDP answers is waited for, and its loads are warm', () => {
  const { samples } = campaign('late');
  for (const sample of samples)
    assert.deepEqual([answered(sample), faultsOf(sample)], ['h2 true,h3 true', []]);
});

test('load over a protocol that could not be warmed is invalid, and one over the other protocol is valid', () => {
  const { samples, quiet } = campaign('udp-deaf');
  for (const sample of samples)
    assert.deepEqual([answered(sample), faultsOf(sample)], ['h2 true,h3 false', []]);
  const cold = quiet.match(
    /\(.*\) is invalid: the server was cold: it did not answer before the load over h3$/gm,
  );
  assert.deepEqual(
    cold,
    ['rehearsal', 'block 1'].map(
      (block) =>
        `(mild, ${block}, h3) is invalid: the server was cold: it did not answer before the load over h3`,
    ),
  );
});

test('server that cannot be warmed is cold in all arms, and the report says so', () => {
  const { samples, quiet } = campaign('deaf');
  for (const sample of samples)
    assert.deepEqual([answered(sample), faultsOf(sample)], ['h2 false,h3 false', []]);
  assert.match(quiet, /^All arms of the server front ran cold: /m);
});
