'use strict';

// PM2 in cluster mode: its processes share the port, and a reload under load loses no request.

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, describe, it } = require('node:test');
const { promisify } = require('node:util');
const { tls } = require('../support/certificate');
const { overHttp2, overHttp3, secure } = require('../support/clients');

const run = promisify(execFile);
const PROCESSES = 2;
/** Requests that run at a time over each protocol. */
const AT_A_TIME = 4;

describe('PM2 in cluster mode', { timeout: 600_000 }, () => {
  const place = fs.mkdtempSync(path.join(os.tmpdir(), 'pronghorn-pm2-'));
  const portFile = path.join(place, 'port');
  const env = {
    ...process.env,
    PM2_HOME: path.join(place, 'home'),
    PORT_FILE: portFile,
    PRONGHORN_HTTP: path.join(__dirname, '..', '..', 'lib', 'http'),
    PRONGHORN_TEST_TLS: JSON.stringify(tls),
  };
  const pm2 = (...args) =>
    run(process.execPath, [path.join(place, 'node_modules', 'pm2', 'bin', 'pm2'), ...args], {
      cwd: place,
      env,
    });

  before(async () => {
    for (const file of ['package.json', 'package-lock.json', 'app.js']) {
      fs.copyFileSync(path.join(__dirname, 'pm2', file), path.join(place, file));
    }
    const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'];
    await run('npm', ['ci', ...quiet], { cwd: place, env: process.env });
  });

  after(async () => {
    // The daemon, and what it runs.
    await pm2('kill');
    fs.rmSync(place, { recursive: true, force: true });
  });

  const list = async () => JSON.parse((await pm2('jlist')).stdout);
  const pids = async () =>
    (await list())
      .filter(({ pm2_env: { status } }) => status === 'online')
      .map(({ pid }) => `${pid}`);
  const port = () => Number(fs.readFileSync(portFile, 'utf8'));
  const requests = { 'HTTP/1.1': secure, 'HTTP/2': overHttp2, 'HTTP/3': overHttp3 };

  /**
   * Sends requests over new connections until `isOver`; each must get a 200. Returns the IDs of the
   * processes that answered.
   */
  async function load(isOver) {
    const answered = new Set();
    let count = 0;
    const ask = async ([protocol, request]) => {
      while (!isOver()) {
        const answer = await request(port());
        assert.equal(
          answer.status,
          200,
          `request ${count} over ${protocol}: ${JSON.stringify(answer)}`,
        );
        answered.add(answer.body.toString());
        count += 1;
      }
    };
    await Promise.all(
      Object.entries(requests).flatMap((each) =>
        Array.from({ length: AT_A_TIME }, () => ask(each)),
      ),
    );
    assert.ok(count > 0);
    return answered;
  }

  it('starts processes that share the port', async () => {
    await pm2(
      'start',
      'app.js',
      '-i',
      `${PROCESSES}`,
      '--kill-timeout',
      '20000',
      '--listen-timeout',
      '20000',
    );
    assert.equal((await pids()).length, PROCESSES);
    for (const request of Object.values(requests)) {
      const answered = new Set();
      for (let index = 0; answered.size < PROCESSES && index < 200; index++) {
        answered.add((await request(port())).body.toString());
      }
      assert.deepEqual([...answered].sort(), (await pids()).sort());
    }
  });

  it('reloads under load without a lost request', async () => {
    const earlier = await pids();
    let isOver = false;
    const loading = load(() => isOver);
    for (let round = 0; round < 3; round++) await Promise.race([pm2('reload', 'app'), loading]);
    isOver = true;
    const answered = await loading;
    const later = await pids();
    assert.equal(later.length, PROCESSES);
    assert.ok(
      later.every((pid) => !earlier.includes(pid)),
      'the processes are the same',
    );
    assert.ok(
      later.some((pid) => answered.has(pid)),
      'the new processes answered nothing',
    );
  });

  it('ends them all', async () => {
    await pm2('delete', 'app');
    assert.deepEqual(await list(), []);
    assert.notEqual((await secure(port())).error, undefined);
  });
});
