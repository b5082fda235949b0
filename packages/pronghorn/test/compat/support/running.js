'use strict';

// A program that runs behind all doors, and what it answers to the same requests over each
// protocol.

const assert = require('node:assert/strict');
const { fork } = require('node:child_process');
const https = require('node:https');
const http = require('node:http');
const path = require('node:path');
const { tls } = require('../../support/certificate');
const { overHttp1 } = require('../../support/clients');
const { ways } = require('../../support/frameworks');
const { install, manifestOf } = require('./install');

const clear = overHttp1(http, {});
/** What node:http and node:https answer is right. */
const references = {
  'node:http in clear text': clear,
  'node:https': overHttp1(https, { rejectUnauthorized: false, servername: 'localhost' }),
};
const requests = {
  ...references,
  ...Object.fromEntries(ways.map(({ name, request }) => [name, request])),
};
const doors = Object.keys(requests);
const referenceOf = (way) =>
  way.endsWith('in clear text') ? 'node:http in clear text' : 'node:https';
/** Seconds that a program may take to start. */
const START_SECONDS = 300;

class Running {
  constructor(child, ports, ended, output) {
    this._child = child;
    this._ports = ports;
    this._ended = ended;
    this.output = output;
    this._last = 0;
    this._waiting = new Map();
    child.on('message', ({ id, value }) => this._waiting.get(id)?.(value));
    ended.then(() =>
      this._waiting.forEach((answer) => answer({ error: `the program ended: ${output()}` })),
    );
  }

  /** What a case asks with behind a door. */
  asking(door) {
    const port = this._ports[door];
    const cookies = new Map();
    const ask = async (target, { jar = false, form, json, ...given } = {}) => {
      const content = contentOf({ form, json, ...given });
      const headers = { ...content.headers, ...given.headers };
      if (jar && cookies.size > 0)
        headers.cookie = [...cookies].map((pair) => pair.join('=')).join('; ');
      const wanted = { ...given, ...content, headers, path: target };
      const answer = await Promise.race([requests[door](port, wanted), this._ended]);
      if (typeof answer !== 'object')
        throw new Error(`the program ended with ${answer}: ${this.output()}`);
      for (const line of setCookies(answer)) {
        const [, name, value] = /^([^=]*)=([^;]*)/.exec(line);
        cookies.set(name, value);
      }
      return shown(answer, port, given.method);
    };
    ask.port = port;
    ask.door = door;
    /** What the program has noted behind this door. */
    ask.seen = (count) =>
      new Promise((resolve) => {
        const id = ++this._last;
        this._waiting.set(id, resolve);
        this._child.send({ id, seen: door, count });
      });
    return ask;
  }

  /** All servers close, and the program ends by itself. */
  async stop() {
    if (this._child.connected) this._child.send({ end: true });
    const timer = setTimeout(() => this._child.kill('SIGKILL'), 60_000);
    const code = await this._ended;
    clearTimeout(timer);
    if (code !== 0) throw new Error(`the program ended with ${code}: ${this.output()}`);
  }
}

/** The body of a request with its type, and with its length unless it comes in pieces. */
function contentOf({ form, json, body, headers, pieces }) {
  let type;
  if (form !== undefined)
    [body, type] = [String(new URLSearchParams(form)), 'application/x-www-form-urlencoded'];
  else if (json !== undefined) [body, type] = [JSON.stringify(json), 'application/json'];
  if (body === undefined) return { headers };
  return {
    body,
    headers: {
      ...(type === undefined ? {} : { 'content-type': type }),
      ...(pieces === undefined ? { 'content-length': String(Buffer.byteLength(body)) } : {}),
    },
  };
}

/** Lines of cookies. The client for HTTP/3 gives them among the other fields. */
const setCookies = ({ headers, raw }) =>
  headers?.filter(([name]) => name === 'set-cookie').map(([, line]) => line) ??
  [raw?.['set-cookie'] ?? []].flat();

/** What is compared of an answer. Ports differ from door to door, and where the length stands node:http has chunks sometimes. */
function shown({ status, fields, body, error, raw }, port, method) {
  const length = raw?.['content-length'] === undefined ? undefined : Number(raw['content-length']);
  if (
    method !== 'HEAD' &&
    error === undefined &&
    ![204, 304].includes(status) &&
    length !== undefined
  ) {
    assert.equal(length, body.length, 'content-length');
  }
  const same = (value) => String(value).replaceAll(`:${port}`, ':PORT');
  const isText = /^(text|application\/(json|.*\+json|javascript|x-ndjson)|image\/svg)/.test(
    fields?.['content-type'] ?? 'text/plain',
  );
  const isPlain = isText && fields?.['content-encoding'] === undefined;
  return {
    status,
    fields: Object.fromEntries(
      Object.entries(fields ?? {}).map(([name, value]) => [name, same(value)]),
    ),
    ...(method === 'HEAD' ? { length } : {}),
    body: body === undefined ? undefined : isPlain ? same(body) : body.toString('base64'),
    ...(error === undefined ? {} : { error: same(error) }),
  };
}

/** Installs a program and starts it behind all doors. */
async function start(name) {
  const { place, executable } = install(name);
  const env = {
    ...process.env,
    PRONGHORN_COMPAT_KEY: tls.key_file_name,
    PRONGHORN_COMPAT_CERT: tls.cert_file_name,
    NODE_ENV: 'production',
    NEXT_TELEMETRY_DISABLED: '1',
    ...manifestOf(name).env,
  };
  delete env.NODE_TEST_CONTEXT;
  const child = fork(path.join(__dirname, 'host.js'), [place, ...doors], {
    cwd: place,
    env,
    execPath: executable,
    execArgv: [],
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => (output += text));
  const ended = new Promise((resolve) =>
    child.on('exit', (code, signal) => resolve(code ?? signal)),
  );
  const timer = setTimeout(() => child.kill('SIGKILL'), START_SECONDS * 1000);
  const ports = await new Promise((resolve, reject) => {
    child.once('message', (message) => resolve(message.ports));
    ended.then((code) => reject(new Error(`the program ended with ${code}: ${output}`)));
  });
  clearTimeout(timer);
  process.on('exit', () => child.kill('SIGKILL'));
  return new Running(child, ports, ended, () => output);
}

module.exports = { doors, start, ways: ways.map(({ name }) => name), referenceOf };
