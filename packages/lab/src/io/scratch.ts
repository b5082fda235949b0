import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const TRIES = 20;
const PAUSE_MS = 100;

/**
 * Removes a folder and its contents. A killed browser may still write for a moment, and
 * `maxRetries` of Node.js empties a folder only once.
 */
export async function removeFolder(path: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      rmSync(path, { recursive: true, force: true });
      return;
    } catch (thrown) {
      if (tries === TRIES) throw thrown;
      await sleep(PAUSE_MS);
    }
  }
}
