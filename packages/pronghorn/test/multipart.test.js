'use strict';

const assert = require('node:assert/strict');
const { it } = require('node:test');
const { getParts } = require('..');

const type = 'multipart/form-data; boundary=xyz';

/** Parts with their data as text. */
function parts(body, contentType = type) {
  return getParts(body, contentType)?.map(({ data, ...rest }) => ({
    ...rest,
    data: Buffer.from(data).toString(),
  }));
}

it('getParts reads fields and files', () => {
  const body =
    '--xyz\r\nContent-Disposition: form-data; name="field"\r\n\r\nvalue\r\n' +
    '--xyz\r\ncontent-disposition: form-data; name="file"; filename="a \\"b\\".txt"\r\nContent-Type: text/plain\r\n\r\n1\r\n--xy\r\n\r\n' +
    '--xyz\r\nContent-Disposition: form-data; name="empty"\r\n\r\n\r\n--xyz--\r\n';
  const expected = [
    { name: 'field', data: 'value' },
    { name: 'file', filename: 'a "b".txt', type: 'text/plain', data: '1\r\n--xy\r\n' },
    { name: 'empty', data: '' },
  ];
  assert.deepEqual(parts(body), expected);
  assert.deepEqual(parts(Buffer.from(body)), expected);
  assert.deepEqual(parts(`preamble\r\n${body}`), expected);
  assert.deepEqual(parts(body, 'multipart/form-data; charset=utf-8; boundary="xyz"'), expected);
});

it('getParts reads a form written by fetch', async () => {
  const form = new FormData();
  form.append('text', 'hällo');
  form.append(
    'file',
    new Blob([new Uint8Array([0, 13, 10, 255])], { type: 'application/x-test' }),
    'ünï.bin',
  );
  const request = new Request('http://localhost', { method: 'POST', body: form });
  const found = getParts(await request.arrayBuffer(), request.headers.get('content-type'));
  assert.deepEqual(
    found.map(({ name, type: kind, filename }) => [name, kind, filename]),
    [
      ['text', undefined, undefined],
      ['file', 'application/x-test', 'ünï.bin'],
    ],
  );
  assert.equal(Buffer.from(found[0].data).toString(), 'hällo');
  assert.deepEqual([...new Uint8Array(found[1].data)], [0, 13, 10, 255]);
});

it('getParts returns undefined for a body that is not multipart', () => {
  const whole = '--xyz\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--xyz--';
  assert.equal(getParts(whole, 'text/plain'), undefined);
  assert.equal(getParts(whole, 'multipart/form-data'), undefined);
  assert.equal(getParts('', type), undefined);
  for (let length = 0; length < whole.length - 2; length++)
    assert.equal(getParts(whole.slice(0, length), type), undefined, String(length));
  const many = Array.from({ length: 11 }, (_, index) => `x-${index}: y\r\n`).join('');
  assert.equal(getParts(`--xyz\r\n${many}\r\n1\r\n--xyz--`, type), undefined);
});
