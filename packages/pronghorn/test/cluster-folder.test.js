'use strict';

// Where the processes of a cluster meet is a folder that everybody may make in /tmp, under this user's name too.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const path = require('node:path');
const { describe, it } = require('node:test');

const program = path.join(__dirname, 'support', 'cluster-folder.js');
const own = `pronghorn-${process.getuid()}`;
const OTHER_USER = 12345;

/** What came of the two, where /tmp and /dev/shm are empty but for what `commands` make there. */
function run(door, commands) {
  const script = ['mount -t tmpfs tmpfs /tmp', 'mount -t tmpfs tmpfs /dev/shm', ...commands, 'exec "$@"'].join(' && ');
  const ran = spawnSync('unshare', ['--mount', 'sh', '-c', script, 'sh', process.execPath, program, door], {
    encoding: 'utf8',
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  assert.equal(ran.status, 0, `${ran.error ?? ''}${ran.stderr}`);
  return JSON.parse(ran.stdout);
}

const taken = (folder) => [
  `mkdir -m 1777 -p ${folder}`,
  `mkdir ${folder}/${own}`,
  `chown ${OTHER_USER} ${folder}/${own}`,
];
const skip = process.getuid() !== 0 && 'only root can mount';

describe('a cluster whose folder', { skip }, () => {
  for (const door of ['App', 'http']) {
    it(`another user has made meets elsewhere (${door})`, () => {
      for (const commands of [taken('/tmp'), [`touch /tmp/${own}`]]) {
        const [one, other] = run(door, commands);
        assert.ok(one.port > 0, JSON.stringify(one));
        assert.deepEqual(other, one);
      }
    });

    it(`is nowhere to be had says which one is to be removed (${door})`, () => {
      for (const { error, port } of run(door, [...taken('/tmp'), ...taken('/dev/shm')])) {
        assert.equal(port, undefined);
        assert.match(error, new RegExp(`/tmp/${own} belongs to another user \\(uid ${OTHER_USER}\\): remove it`));
        assert.doesNotMatch(error, /undefined/);
      }
    });
  }
});
