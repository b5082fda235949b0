'use strict';

// The types match the exports for both kinds of modules, and the options that are accepted.

const assert = require('node:assert/strict');
const path = require('node:path');
const { describe, it } = require('node:test');
const ts = require('typescript');
const description = require('../package.json');

/** Reads the exports of a type file. */
function read(file) {
  const program = ts.createProgram([file], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    types: ['node'],
    skipLibCheck: true,
  });
  const checker = program.getTypeChecker();
  return { checker, module: checker.getSymbolAtLocation(program.getSourceFile(file)) };
}

/** Returns the values that a type file exports. */
function declared(file) {
  const { checker, module } = read(file);
  const isOfTypes = (declaration) =>
    ts.isExportSpecifier(declaration) &&
    (declaration.isTypeOnly || declaration.parent.parent.isTypeOnly);
  const isValue = (symbol) => {
    if (symbol.declarations?.some(isOfTypes)) return false;
    const real = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    return (real.flags & ts.SymbolFlags.Value) !== 0;
  };
  const names = checker
    .getExportsOfModule(module)
    .filter(isValue)
    .map((symbol) => symbol.name);
  return names.filter((name) => name !== 'default' && name !== 'export=').sort();
}

const named = (exported) =>
  Object.keys(exported)
    .filter((name) => name !== 'default' && name !== 'module.exports' && name !== '__esModule')
    .sort();

for (const [entry, target] of Object.entries(description.exports)) {
  if (entry === './package.json') continue;
  const types = {
    import: target.import?.types ?? target.types,
    require: target.require?.types ?? target.types,
  };
  const name = path.posix.join('pronghorn', entry);
  describe(name, () => {
    it('exports what its types declare to ES modules', async () => {
      const wanted = declared(path.resolve(__dirname, '..', types.import));
      assert.ok(wanted.length > 0);
      assert.deepEqual(named(await import(name)), wanted);
    });

    it('exports what its types declare to CommonJS', () => {
      assert.deepEqual(
        named(require(name)),
        declared(path.resolve(__dirname, '..', types.require)),
      );
    });
  });
}

describe('options', () => {
  const options = require('../lib/options');
  /** Returns the property names of an interface. */
  function ofInterface(file, name) {
    const { checker, module } = read(path.resolve(__dirname, '..', file));
    const found = checker.getExportsOfModule(module).find((symbol) => symbol.name === name);
    const properties = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(found));
    return properties.map((property) => property.name).sort();
  }
  /** Returns the options that `serve` destructures by name. */
  function ofServe(serve) {
    const [, names] = /const \{([^}]+)\} = given;/.exec(String(serve));
    const taken = names.split(',').map((name) => name.trim().split(' ')[0]);
    const dropped = [...String(serve).matchAll(/delete more\.(\w+)/g)].map(([, name]) => name);
    return [...taken, ...dropped].filter((name) => name !== '' && !name.startsWith('.'));
  }

  const { serve } = require('../lib/fetch');
  const cases = [
    ['index.d.ts', 'AppOptions', options.KNOWN],
    ['index.d.ts', 'TlsOptions', options.TLS],
    ['index.d.ts', 'WebSocketBehavior', require('../lib/websocket').OPTIONS],
    ['index.d.ts', 'WebTransportBehavior', require('../lib/webtransport').OPTIONS],
    ['lib/http/index.d.ts', 'ServerOptions', require('../lib/http/server').OPTIONS],
    ['lib/fetch/index.d.ts', 'ServeOptions', [...new Set([...options.KNOWN, ...ofServe(serve)])]],
  ];
  for (const [file, name, taken] of cases) {
    it(`of ${name} are the accepted ones`, () =>
      assert.deepEqual(ofInterface(file, name), [...taken].sort()));
  }

  it('declared in the types are accepted, and others are rejected', () => {
    const { createServer } = require('../lib/http');
    const uWS = require('..');
    const calls = {
      AppOptions: (given) => uWS.App(given),
      ServerOptions: (given) => createServer(given),
      TlsOptions: (given) => uWS.App().addServerName('name.test', given),
    };
    for (const [file, name] of cases.filter(([, known]) => known in calls)) {
      for (const option of ofInterface(file, name)) calls[name]({ [option]: undefined });
      assert.throws(() => calls[name]({ anything: 1 }), /has no option "anything"/);
    }
  });
});
