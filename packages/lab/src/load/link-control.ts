import { readSync, writeSync } from 'node:fs';
import process from 'node:process';

/** Names the descriptor of the socket over which `pronghorn link` takes orders, see docs/link.md. */
const VARIABLE = 'PRONGHORN_LINK_CONTROL';

/**
 * Tells the link that this process runs behind that the load begins or has ended, and waits until it has taken notice.
 *
 * The answer takes as long as the link takes to look at the machine, some milliseconds. Nothing else may happen here
 * meanwhile, so it is waited for without the event loop.
 */
export function tellLink(order: 'start' | 'end'): void {
  const descriptor = Number(process.env[VARIABLE]);
  if (!Number.isInteger(descriptor) || descriptor <= 0) {
    throw new Error(`${VARIABLE} is not set: the link is of another version than the lab`);
  }
  writeSync(descriptor, `${order}\n`);
  const answer = readLine(descriptor);
  if (answer !== (order === 'start' ? 'started' : 'ended')) throw new Error(`the link answers ${order} by: ${answer}`);
}

function readLine(descriptor: number): string {
  const byte = Buffer.alloc(1);
  let line = '';
  while (readSync(descriptor, byte, 0, 1, null) === 1) {
    if (byte[0] === 0x0a) return line;
    line += byte.toString('latin1');
  }
  throw new Error('the link has closed its end of the socket');
}
