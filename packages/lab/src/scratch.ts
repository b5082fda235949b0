import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const TRIES = 20;
const PAUSE_MS = 100;

/**
 * Removes a folder with all that is in it. A browser that was killed may still write for a moment, and \`maxRetries\` of
 * Node.js empties a folder only once.
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
