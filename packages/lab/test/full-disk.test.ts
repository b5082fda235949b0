import assert from 'node:assert/strict';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { spawnSync } from 'node:child_process';
import test, { after } from 'node:test';
import { FakeBench, PLAN, type Ended } from './fake-bench.js';

/** Each load leaves $KEEP bytes of incompressible output, and runs $DO in the load $AT. */
const bench = new FakeBench(
  '[ "$n" = 0 ] && exit 0\nhead -c "${KEEP:-10}" /dev/urandom | base64\n[ "$n" = "${AT:-0}" ] && eval "$DO"\nexit 69',
);
after(() => {
  rmSync(bench.folder, { recursive: true });
});

/** A small disk is a mount in a user namespace, which some machines do not permit. */
const probe = spawnSync('unshare', ['--user', '--map-root-user', '--mount', 'true'], {
  encoding: 'utf8',
});
const skip =
  probe.status === 0 ? false : `user namespaces are not allowed here: ${probe.stderr.trim()}`;

let disks = 0;
/**
 * Returns the output of a shell script whose folder $disk is small. Its files are gone when the
 * script ends, so the script has to print what matters.
 */
function onDisk(bytes: number, script: string, env: Readonly<Record<string, string>> = {}): Ended {
  const disk = bench.path(`disk-${(disks += 1)}`);
  mkdirSync(disk);
  const look =
    'look() { wc -l < "$disk/out/samples.jsonl"; grep -o \'"status": "[a-z]*"\' "$disk/out/campaign.json"; }';
  return bench.onDisk(disk, bytes, `${look}\n${script}`, env);
}

/** Returns a command that leaves so many bytes of the disk free. */
const fill = (bytes: number): string =>
  `cat /dev/zero > "$disk/fill" 2>/dev/null; truncate -s -${bytes} "$disk/fill"`;

/** Prints each exit code, and the output of `look`. */
const TWICE =
  '$lab run "$plan" --out "$disk/out" >/dev/null; echo "ended $?"; look; tail -c 1 "$disk/out/samples.jsonl" | od -An -c\n' +
  'mount -o remount,rw,size=64m "$disk"\n' +
  'AT=0 $lab run "$plan" --out "$disk/out" --resume >/dev/null; echo "ended $?"; look; ls "$disk/out"\n' +
  '$lab run "$plan" --out "$disk/out" --resume >/dev/null; echo "ended $?"';

function assertGoesOn({ stdout, stderr }: Ended, problem: RegExp): void {
  const words = stdout.trim().split(/\s*\n\s*/);
  assert.equal(words[0], 'ended 73', `${stdout}${stderr}`);
  const made = Number(words[1]);
  assert.ok(made > 0 && made < 6, stdout);
  assert.deepEqual(
    words.slice(2, 7),
    ['"status": "running"', '\\n', 'ended 3', '6', '"status": "finished"'],
    stdout,
  );
  assert.ok(words.includes('report.html') && !words.includes('running.json'), stdout);
  assert.ok(!words.some((word) => word.endsWith('.partial')), stdout);
  assert.equal(words.at(-1), 'ended 73');
  assert.match(stderr, problem);
  assert.match(stderr, /is finished; use another --out for a new one\n$/);
  assert.doesNotMatch(stderr, /this is a bug/);
}

test(
  'full disk ends a campaign with code 73 and what to do, and the campaign resumes where it was',
  { skip },
  () => {
    const run = onDisk(200_000, TWICE, { KEEP: '40000' });
    const says =
      /\nerror: cannot write \S+\/out\/\S+: no space left on the disk; free some space, then the same command with --resume continues: the loads so far are kept\n/;
    assertGoesOn(run, says);
  },
);

test('disk that becomes read-only does the same', { skip }, () => {
  // Uses a read-only mount, since a file system with a file open for writing cannot be made
  // read-only.
  const run = onDisk(
    4_000_000,
    TWICE.replace('mount -o remount,rw,size=64m "$disk"', 'umount "$disk/out"'),
    {
      AT: '3',
      DO: 'mount --bind "$disk/out" "$disk/out"; mount -o remount,bind,ro "$disk/out"',
    },
  );
  assertGoesOn(
    run,
    /\nerror: cannot write \S+\/out\/\S+: the file system is read-only; make it writable, then the same /,
  );
});

test(
  'disk that is full before the first load leaves no files that prevent a restart',
  { skip },
  () => {
    const { stdout, stderr } = onDisk(
      4_000_000,
      `${fill(0)}; $lab run "$plan" --out "$disk/out"; echo "ended $?"; ls -A "$disk/out"; rm "$disk/fill"\n` +
        '$lab run "$plan" --out "$disk/out" >/dev/null; echo "ended $?"',
    );
    assert.equal(stdout, 'ended 73\nended 3\n', stderr);
    assert.match(
      stderr,
      /^(warning: [^\n]*\n)*error: cannot write \S+: no space left on the disk; free some space, then run the command again\n/,
    );
  },
);

test(
  'campaign whose report did not fit on the disk is completed by making the report',
  { skip },
  () => {
    const { stdout, stderr } = onDisk(
      1_000_000,
      '$lab run "$plan" --out "$disk/out" >/dev/null; echo "ended $?"; look; ls "$disk/out" | grep report\n' +
        '$lab run "$plan" --out "$disk/out" --resume >/dev/null; echo "ended $?"; look; ls "$disk/out" | grep report\n' +
        'rm "$disk/fill"; $lab run "$plan" --out "$disk/out" --resume >"$disk/table"; echo "ended $?"\n' +
        'grep -c "^report: " "$disk/table"; ls "$disk/out" | grep report\n' +
        '$lab run "$plan" --out "$disk/out" --resume; echo "ended $?"',
      // Samples, traces and the campaign's end fit into this space.
      { AT: '6', DO: fill(24_576) },
    );
    const finished = '6\n"status": "finished"';
    assert.equal(
      stdout,
      `ended 73\n${finished}\nended 73\n${finished}\nended 3\n1\nreport.html\nended 73\n`,
      stderr,
    );
    assert.match(
      stderr,
      /error: cannot write \S+\/out\/\S+: no space left on the disk; .* with --resume continues/,
    );
    assert.match(stderr, /is finished; use another --out/);
  },
);

for (const [what, fault, env] of [
  [
    'says so',
    /error: cannot write \S+: no space left on the disk/,
    {
      DO: 'echo "error: cannot write the packets x: No space left on device (os error 28): name a file"',
    },
  ],
  [
    'fills it',
    /error: cannot write \S+: no space left on the disk/,
    { DO: 'cat /dev/zero > "$disk/fill"; exit 0' },
  ],
] as const) {
  test(`load whose link ${what} on a full disk does not count, and is repeated`, { skip }, () => {
    const out = bench.path(`scratch-${what.replace(' ', '-')}`);
    const { stdout, stderr } = onDisk(
      8_000_000,
      `export TMPDIR="$disk"; $lab run "$plan" --out ${out} >/dev/null; echo "ended $?"; wc -l < ${out}/samples.jsonl\n` +
        `rm -f "$disk/fill"; DO=true $lab run "$plan" --out ${out} --resume >/dev/null; echo "ended $?"; wc -l < ${out}/samples.jsonl`,
      { AT: '3', ...env },
    );
    assert.equal(stdout, 'ended 73\n2\nended 3\n6\n', stderr);
    assert.match(stderr, fault);
  });
}

test('sample that fits only in part leaves no partial line', { skip }, () => {
  const module = fileURLToPath(new URL('../src/samples/samples-file.js', import.meta.url));
  const program =
    `import { appendSample } from '${module}'; const path = process.argv[1]; ` +
    "try { appendSample(path, { text: 'x'.repeat(9000) }); } catch ({ code, path }) { console.log(code, path); }";
  const { stdout, stderr } = onDisk(
    16_384,
    `echo line > "$disk/samples.jsonl"; ${fill(4_096)}\n` +
      `node --input-type=module --eval "$program" "$disk/samples.jsonl"; cat "$disk/samples.jsonl"`,
    { program },
  );
  assert.match(stdout, /^ENOSPC \S+\/samples\.jsonl\nline\n$/, stderr);
});

test('report of a folder on a full disk is not reported as a bug', { skip }, () => {
  const { stdout, stderr } = onDisk(
    1_000_000,
    `$lab run "$plan" --out "$disk/out" >/dev/null 2>&1; ${fill(0)}\n$lab report "$disk/out" >/dev/null; echo "ended $?"`,
  );
  assert.equal(stdout, 'ended 73\n', stderr);
  assert.match(
    stderr,
    /^error: cannot write \S+: no space left on the disk; free some space, then run the command again\n$/,
  );
});

test('server that does not start shows its last twenty lines', () => {
  const fails = new FakeBench(
    'for i in $(seq 30); do printf "line %s of the \\033[31mserver\\033[0m\\n" $i; done\n' +
      'echo "error: the far command ended (exit status: 3) before it listened on tcp port 443: its own messages stand above"; exit 69',
  );
  const out = join(fails.folder, 'out');
  const { status, stderr } = fails.run(['run', PLAN, '--out', out]);
  const [error, ...details] = stderr.trimEnd().split('\n');
  assert.equal(status, 69);
  assert.match(
    error ?? '',
    /^error: the link of profile mild did not come up: the far command ended \(exit status: 3\) before it listened on tcp port 443; last output: line 30 of the server$/,
  );
  const lines = Array.from({ length: 20 }, (_, at) => `    line ${at + 11} of the server`);
  assert.deepEqual(details, ['  Output before that:', ...lines]);
  rmSync(fails.folder, { recursive: true });
});
