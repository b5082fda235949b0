import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { findBrowser } from '../../src/run/browser.js';
import { closeBrowser } from '../../src/load/close.js';
import { findConfinement, launchBrowser, makeFolderFor } from '../../src/run/sandbox.js';

/** Chromium's sandbox has to be on wherever the machine supports it, also for root. */

function folderFor(t: TestContext, mode: number): string {
  const folder = mkdtempSync(join(tmpdir(), 'lab-sandbox-'));
  chmodSync(folder, mode);
  t.after(() => {
    rmSync(folder, { recursive: true });
  });
  return mkdtempSync(join(folder, 'scratch-'));
}

/**
 * Returns, using a third-party program, whether another user than root may create the namespaces
 * that the sandbox needs.
 */
function isPossible(): boolean {
  const unshare = ['unshare', '--user', '--pid', '--net', '--fork', 'true'];
  const asOther = ['--reuid=65534', '--regid=65534', '--clear-groups', ...unshare];
  const [program, ...args] = process.geteuid?.() === 0 ? ['setpriv', ...asOther] : unshare;
  return spawnSync(program as string, args).status === 0;
}

const { path: chromium } = findBrowser(process.env.CHROMIUM);
const isRoot = process.geteuid?.() === 0;

test('browser runs in its sandbox and not as root', async (t) => {
  const scratch = folderFor(t, 0o755);
  const confinement = await findConfinement(chromium, scratch);
  if (!isPossible()) {
    assert.equal(confinement.sandbox, false);
    assert.match(confinement.reason ?? '', /\S/);
    return;
  }
  assert.ok(confinement.sandbox, confinement.reason);
  const folder = makeFolderFor(confinement, join(scratch, 'browser-'));
  const netLog = join(folder, 'netlog.json');
  const browser = await launchBrowser({
    ...{ chromium, confinement, folder, writes: [netLog] },
    args: ['--disable-gpu', '--no-first-run', `--log-net-log=${netLog}`],
  });
  try {
    const page = await browser.newPage();
    await page.goto('data:text/html,<title>here</title>');
    assert.equal(await page.title(), 'here');
    const processes = processesNaming(folder);
    assert.ok(processes.some(({ line }) => line.includes('--type=renderer')));
    for (const { line, status } of processes) {
      if (isRoot) assert.match(status, /^Uid:\t65534\t65534\t65534\t65534$/m, line);
      // 2: system calls are filtered.
      if (line.includes('--type=renderer')) assert.match(status, /^Seccomp:\t2$/m, line);
    }
  } finally {
    await closeBrowser(browser);
  }
  assert.match(readFileSync(netLog, 'utf8'), /"constants":/);
});

test('reason for a disabled sandbox is reported', { skip: !isRoot }, async (t) => {
  const confinement = await findConfinement(chromium, folderFor(t, 0o700));
  assert.deepEqual([confinement.sandbox, confinement.user], [false, undefined]);
  assert.match(
    confinement.reason ?? '',
    /other users cannot enter \S*lab-sandbox-\w+; set TMPDIR to a folder that they can enter$/,
  );
  const broken = await findConfinement('/bin/false', folderFor(t, 0o755));
  assert.equal(broken.sandbox, false);
  assert.match(broken.reason ?? '', /^Chromium does not start with its sandbox: /);
});

function processesNaming(folder: string): { line: string; status: string }[] {
  const pids = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  return pids.flatMap((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      return line.includes(folder)
        ? [{ line, status: readFileSync(`/proc/${pid}/status`, 'utf8') }]
        : [];
    } catch {
      // The process has ended meanwhile.
      return [];
    }
  });
}
