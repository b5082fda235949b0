'use strict';

// Generates the tables of docs/node/compatibility.md from the cases of the suite.

const { manifestOf, names, versionsOf } = require('./install');
const upgrades = require('../upgrade/covers');
const { dependencies } = require('../upgrade/package.json');

/** Kinds of packages by heading. */
const SECTIONS = {
  Frameworks: [
    'framework',
    'adapter of NestJS',
    'server of fetch handlers',
    'GraphQL server',
    'RPC server',
  ],
  'Meta-frameworks': ['meta-framework'],
  'Express middleware': ['middleware'],
  'WebSocket servers': ['WebSocket server'],
  Observability: ['observability'],
};

/** Returns one row for each package: its cases, or why it is not tested. */
function rows() {
  const onUpgrade = Object.entries(upgrades).map(([subject, works]) => ({
    kind: 'WebSocket server',
    cells: [subject, dependencies[subject], '20', works, ''],
  }));
  const programs = names.flatMap((name) => {
    const { covers, cases, notes = {}, skipped = {}, node = '20' } = manifestOf(name);
    const version = versionsOf(name);
    const tried = Object.entries(covers).map(([subject, kind]) => {
      const all = Object.entries(cases[subject]);
      const works = all.filter(([, given]) => given.differs === undefined).map(([title]) => title);
      const reasons = all.flatMap(([title, { differs }]) =>
        differs === undefined ? [] : [`${title}: ${differs}`],
      );
      if (notes[subject] !== undefined) reasons.push(notes[subject]);
      return {
        kind,
        cells: [subject, version(subject), node, works.join('; '), reasons.join('; ')],
      };
    });
    const not = Object.entries(skipped).map(([subject, { kind, why }]) => ({
      kind,
      cells: [subject, '', '', 'not tried', why],
    }));
    return [...tried, ...not];
  });
  return [...programs, ...onUpgrade];
}

/** Returns the tables with their headings. */
function tables() {
  const all = rows();
  const sections = Object.entries(SECTIONS).map(([heading, kinds]) => {
    const lines = all
      .filter(({ kind }) => kinds.includes(kind))
      .map(({ cells: [name, ...others] }) =>
        `| ${[name.replace(/^\S+/, '`$&`'), ...others].join(' | ')} |`.replaceAll('|  |', '| |'),
      )
      .sort();
    return [
      `## ${heading}`,
      '',
      '| package | version | Node.js from | same as over `node:http` | differences |',
      '|---|---|---|---|---|',
      ...lines,
    ].join('\n');
  });
  return `${sections.join('\n\n')}\n`;
}

module.exports = { rows, tables, SECTIONS };
