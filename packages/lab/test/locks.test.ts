import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  constants,
  existsSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';
import test, { after } from 'node:test';
import {
  FakeBench,
  LOADS,
  loadsIn,
  PLAN,
  statusOf,
  type Ended,
  type Started,
} from './fake-bench.js';

/**
 * A load reports that it runs and continues when told to, both through named pipes, unless there
 * are none.
 */
const bench = new FakeBench(
  '[ "$n" = 0 ] && exit 0\n[ -z "$HOLD" ] && exit 69\n[ "$n" = 1 ] && { echo > "$HOLD.runs"; read -r word < "$HOLD.go"; }\nexit 69',
);
after(() => {
  rmSync(bench.folder, { recursive: true });
});

/**
 * Opens both ends of a named pipe, so as not to wait for another process. A waiting thread would
 * keep this process from ending.
 */
const WITHOUT_WAITING = constants.O_RDWR | constants.O_NONBLOCK;

/** Starts a campaign and keeps it in its first load until it is told to continue. */
async function held(
  name: string,
  args: readonly string[] = [],
): Promise<Started & { go: () => Promise<Ended> }> {
  const hold = bench.path(`${name}.hold`);
  spawnSync('mkfifo', [`${hold}.runs`, `${hold}.go`]);
  const campaign = bench.start(['run', PLAN, '--out', bench.path(name), ...args], { HOLD: hold });
  const runs = new Socket({ fd: openSync(`${hold}.runs`, WITHOUT_WAITING) });
  const early = campaign.ended.then(({ stderr }) => {
    throw new Error(stderr);
  });
  await Promise.race([once(runs, 'data'), early]).finally(() => runs.destroy());
  early.catch(() => undefined);
  return {
    ...campaign,
    go: async () => {
      // Stays open until the load has ended: unread data is lost when the pipe's last end closes.
      const go = openSync(`${hold}.go`, WITHOUT_WAITING);
      writeSync(go, '\n');
      return campaign.ended.finally(() => {
        closeSync(go);
      });
    },
  };
}

function assertBusy({ status, stdout, stderr }: Ended, says: RegExp): void {
  assert.equal(status, 75, stderr);
  assert.match(stderr, says);
  assert.match(stderr, /^error: [^\n]+\n$/);
  assert.equal(stdout, '');
}

test("second process on a folder is refused with the first one's process ID, and each load is made once", async () => {
  const out = bench.path('folder');
  const first = await held('folder');
  const pid = first.child.pid ?? 0;
  const says = new RegExp(
    `the campaign in .*/folder is running as process ${pid}; wait until it ends, or stop it`,
  );
  const share = { PRONGHORN_LAB_SHARE_MACHINE: '1' };
  assertBusy(bench.run(['run', PLAN, '--out', out, '--resume']), says);
  assertBusy(bench.run(['run', PLAN, '--out', out, '--resume', '--wait'], share), says);
  assert.equal(bench.run(['run', PLAN, '--out', out], share).status, 73);
  const { status, stderr } = await first.go();
  assert.equal(status, 3, stderr);
  assert.deepEqual(loadsIn(out), [1, 2, 3, 4, 5, 6]);
});

test('locks of a killed process are released, and its load is stopped', async () => {
  const out = bench.path('killed');
  const first = await held('killed');
  first.child.kill('SIGKILL');
  await first.ended;
  const { status, stderr } = bench.run(['run', PLAN, '--out', out, '--resume']);
  assert.equal(status, 3, stderr);
  assert.deepEqual(loadsIn(out), [1, 2, 3, 4, 5, 6]);
  assert.equal(statusOf(out), 'finished');
});

test('machine of a killed campaign is locked until its load has ended', async () => {
  const first = await held('left');
  first.child.kill('SIGKILL');
  await first.ended;
  const second = ['run', PLAN, '--out', bench.path('after-left')];
  assertBusy(bench.run(second), /^error: process \d+ is measuring on this machine/);
  const waits = bench.start([...second, '--wait']);
  await waits.says(/^waiting: process \d+ is measuring/);
  const go = openSync(bench.path('left.hold.go'), WITHOUT_WAITING);
  writeSync(go, '\n');
  const { status, stderr } = await waits.ended;
  closeSync(go);
  assert.equal(status, 3, stderr);
});

test("second campaign on the machine is refused with the first one's process ID and command", async () => {
  const first = await held('alone');
  const pid = first.child.pid ?? 0;
  const who = `process ${pid} \\(run \\S+plan\\.toml --out \\S+/alone\\) is measuring on this machine`;
  const says = new RegExp(
    `^error: ${who}; .*; use --wait to start when it has ended, or --share-machine with every campaign`,
  );
  for (const args of [
    ['run', PLAN, '--out', bench.path('second')],
    // The first campaign does not share the machine.
    ['run', PLAN, '--out', bench.path('second'), '--share-machine'],
    ['conformance', '--out', bench.path('second')],
  ]) {
    assertBusy(bench.run(args), says);
    assert.equal(existsSync(bench.path('second')), false);
  }
  await first.go();
  assert.equal(bench.run(['run', PLAN, '--out', bench.path('second')]).status, 3);
});

test('campaign with --wait begins when the other is done, and can be interrupted before', async () => {
  const first = await held('before');
  const says = new RegExp(`^waiting: process ${first.child.pid ?? 0} \\(run `);
  const [second, third] = ['second-waits', 'third-waits'].map((name) =>
    bench.start(['run', PLAN, '--out', bench.path(name), '--wait']),
  ) as [Started, Started];
  await Promise.all([second.says(says), third.says(says)]);
  third.child.kill('SIGINT');
  const interrupted = await third.ended;
  assert.equal(interrupted.status, 130, interrupted.stderr);
  assert.match(interrupted.stderr, /\nerror: interrupted before the first load\n$/);
  assert.equal(existsSync(bench.path('second-waits')), false);

  await first.go();
  const { status, stderr } = await second.ended;
  assert.equal(status, 3, stderr);
  assert.equal(loadsIn(bench.path('second-waits')).length, LOADS);
});

test('campaigns that all share the machine run beside each other, and their reports say so', async () => {
  const first = await held('shares', ['--share-machine']);
  const second = bench.path('shares-too');
  const { status, stdout, stderr } = bench.run(['run', PLAN, '--out', second], {
    PRONGHORN_LAB_SHARE_MACHINE: '1',
  });
  assert.equal(status, 3, stderr);
  const note =
    /could share the machine \(--share-machine\): others measured during 6 of the 6 loads/;
  assert.match(stdout, note);
  assert.match(readFileSync(join(second, 'report.html'), 'utf8'), note);
  assertBusy(
    bench.run(['run', PLAN, '--out', bench.path('not-shared')]),
    /^error: process \d+ \(run .*\) is measuring on/,
  );
  const own = await first.go();
  // The other campaign ran during its first load, but neither at that load's start nor at its end.
  assert.match(
    own.stdout,
    /could share the machine \(--share-machine\): no other campaign was observed/,
  );
});

test('campaign that has the machine to itself reports nothing about it', () => {
  const { stdout } = bench.run(['run', PLAN, '--out', bench.path('quiet')]);
  assert.doesNotMatch(stdout, /shared/);
});

test('invalid value of a switch is rejected', () => {
  const { status, stderr } = bench.run(['run', PLAN], { PRONGHORN_LAB_SHARE_MACHINE: 'yes' });
  assert.equal(status, 2);
  assert.match(stderr, /PRONGHORN_LAB_SHARE_MACHINE must be 0 or 1, not yes/);
});

test('lock that is a named pipe is rejected at once', { timeout: 300_000 }, async (t) => {
  const pipe = bench.path('pipe.lock');
  spawnSync('mkfifo', [pipe]);
  const campaign = bench.start(['run', PLAN, '--out', bench.path('no-lock')], {
    PRONGHORN_LAB_LOCK: pipe,
  });
  t.after(() => campaign.child.kill('SIGKILL'));
  const { status, stderr } = await campaign.ended;
  assert.equal(status, 73);
  assert.match(
    stderr,
    /^error: cannot lock \S+pipe\.lock: not a regular file; remove it if [^\n]+\n$/,
  );
});

test('lock that is not a file, and a machine without flock, are reported', () => {
  const folder = bench.run(['run', PLAN, '--out', bench.path('no-lock')], {
    PRONGHORN_LAB_LOCK: '/nowhere/lock',
  });
  assert.equal(folder.status, 73);
  assert.match(
    folder.stderr,
    /^error: cannot lock \/nowhere\/lock: ENOENT.* set PRONGHORN_LAB_LOCK to another file\n$/,
  );
  const programs = bench.path('no-programs');
  const none = bench.run(['run', PLAN, '--out', bench.path('no-lock')], { PATH: programs });
  assert.equal(none.status, 69);
  assert.match(
    none.stderr,
    /^error: cannot find the program flock; install the package util-linux\n$/,
  );
  assert.equal(existsSync(bench.path('no-lock')), false);
});
