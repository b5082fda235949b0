import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

const WARM = fileURLToPath(new URL('../src/load/warm.js', import.meta.url));

test(
  'interrupted load stops the server of the page that warms the browser',
  { timeout: 300_000 },
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'lab-warm-test-'));
    t.after(() => {
      rmSync(folder, { recursive: true });
    });
    // The server has it open while it runs.
    const pipe = join(folder, 'pipe');
    spawnSync('mkfifo', [pipe]);
    const server = `exec 9<>${pipe}; echo listening on http://127.0.0.1:1 >&2; exec sleep 1000`;
    const load = `import(${JSON.stringify(WARM)}).then(({ warm }) => {
    process.once('SIGTERM', () => process.exit(1));
    const newPage = () => { console.log('loads'); return new Promise(() => setInterval(() => {}, 1000)); };
    return warm({ newPage }, { command: ['sh', '-c', ${JSON.stringify(server)}] }, 60);
  });`;
    const child = spawn(process.execPath, ['--eval', load], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    const gone = new Socket({
      fd: openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK),
    }).resume();
    child.kill('SIGTERM');
    await Promise.all([once(gone, 'end'), once(child, 'exit')]);
    assert.equal(child.exitCode, 1);
  },
);
