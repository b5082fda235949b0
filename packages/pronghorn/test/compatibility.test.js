'use strict';

// The page of frameworks and middlewares says what `npm run test:compat` runs, and those that are
// here for development are tried at once.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { describe, it } = require('node:test');
const { isQuick, manifestOf, names, packagesOf, versionsOf } = require('./compat/support/install');
const { rows, tables, SECTIONS } = require('./compat/support/page');
const { suite } = require('./compat/support/suite');

const page = path.join(__dirname, '..', '..', '..', 'docs', 'node', 'compatibility.md');
const [begin, end] = [
  '<!-- Written by UPDATE_DOCS=1 node --test test/compatibility.test.js -->\n',
  '<!-- end -->\n',
];

describe('docs/node/compatibility.md', () => {
  it('has the programs that the suite runs, with their versions', () => {
    const text = fs.readFileSync(page, 'utf8');
    const [from, to] = [text.indexOf(begin) + begin.length, text.indexOf(end)];
    const wanted = `\n${tables()}\n`;
    if (process.env.UPDATE_DOCS)
      fs.writeFileSync(page, text.slice(0, from) + wanted + text.slice(to));
    else assert.equal(text.slice(from, to), wanted, 'UPDATE_DOCS=1 writes it');
  });

  it('has a section for each row', () => {
    const kinds = Object.values(SECTIONS).flat();
    for (const { kind, cells } of rows()) assert.ok(kinds.includes(kind), `${cells[0]}: ${kind}`);
  });
});

for (const name of names) {
  describe(`the program ${name}`, () => {
    it('has cases for what it covers', () => {
      const { covers, cases } = manifestOf(name);
      assert.deepEqual(Object.keys(cases).sort(), Object.keys(covers).sort());
      const version = versionsOf(name);
      for (const subject of Object.keys(covers)) assert.match(version(subject), /^\d/, subject);
    });

    it('names exact versions, and no registry', { skip: isQuick(name) }, () => {
      const { dependencies } = JSON.parse(
        fs.readFileSync(path.join(packagesOf(name), 'package.json'), 'utf8'),
      );
      for (const [dependency, version] of Object.entries(dependencies))
        assert.match(version, /^\d+\.\d+\.\d+$/, dependency);
      assert.doesNotMatch(
        fs.readFileSync(path.join(packagesOf(name), 'package-lock.json'), 'utf8'),
        /"resolved": "http/,
      );
    });
  });
}

for (const name of names.filter(isQuick)) suite(name);
