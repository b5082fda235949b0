import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const CONTROL = fileURLToPath(new URL('../src/load/link-control.js', import.meta.url));

/**
 * Sends a command from a process whose descriptor 3 is one end of a socket, and answers at the
 * other end. Returns the received command and the result.
 */
async function give(
  order: string,
  answer: string | undefined,
  variable = '3',
): Promise<[string, string]> {
  const script = `import(${JSON.stringify(CONTROL)}).then(({ notifyLink }) => {
    notifyLink(${JSON.stringify(order)});
  }).catch((error) => { process.stderr.write(error.message); });`;
  const child = spawn(process.execPath, ['--eval', script], {
    stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
    env: { ...process.env, PRONGHORN_LINK_CONTROL: variable },
  });
  const link = child.stdio[3] as import('node:net').Socket;
  let came = '';
  link.on('data', (bytes: Buffer) => {
    came += bytes.toString();
    if (answer === undefined) link.end();
    else link.write(answer);
  });
  link.on('error', () => undefined);
  let said = '';
  child.stderr?.on('data', (bytes: Buffer) => (said += bytes.toString()));
  await new Promise((resolve) => child.once('close', resolve));
  return [came, said];
}

test('an order is one line, and done once its own answer has arrived', async () => {
  assert.deepEqual(await give('start', 'started\n'), ['start\n', '']);
  assert.deepEqual(await give('end', 'ended\n'), ['end\n', '']);
});

test('an unknown order or an unavailable link is distinguished from an accepted order', async () => {
  assert.deepEqual(await give('start', 'error: unknown order\n'), [
    'start\n',
    'the link answered start with: error: unknown order',
  ]);
  assert.deepEqual(await give('end', undefined), ['end\n', 'the link closed the control socket']);
  const [came, said] = await give('start', 'started\n', '');
  assert.equal(came, '');
  assert.match(said, /PRONGHORN_LINK_CONTROL is not set/);
});
