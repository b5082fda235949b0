import { readSync, writeSync } from 'node:fs';
import process from 'node:process';

/**
 * Environment variable with the descriptor of the socket on which `pronghorn link` takes commands,
 * see docs/link.md.
 */
const VARIABLE = 'PRONGHORN_LINK_CONTROL';

/**
 * Tells the link around this process that the load begins or has ended, and waits for the answer.
 *
 * The answer takes some milliseconds, in which the link reads the machine's counters. Nothing else
 * may happen here meanwhile, so the wait blocks the event loop.
 */
export function notifyLink(order: 'start' | 'end'): void {
  const descriptor = Number(process.env[VARIABLE]);
  if (!Number.isInteger(descriptor) || descriptor <= 0) {
    throw new Error(`${VARIABLE} is not set: the link and the lab have different versions`);
  }
  writeSync(descriptor, `${order}\n`);
  const answer = readLine(descriptor);
  if (answer !== (order === 'start' ? 'started' : 'ended'))
    throw new Error(`the link answered ${order} with: ${answer}`);
}

function readLine(descriptor: number): string {
  const byte = Buffer.alloc(1);
  let line = '';
  while (readSync(descriptor, byte, 0, 1, null) === 1) {
    if (byte[0] === 0x0a) return line;
    line += byte.toString('latin1');
  }
  throw new Error('the link closed the control socket');
}
