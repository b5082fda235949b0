'use strict';

// What types say that the package exports is what it exports, to both kinds of modules.

const assert = require('node:assert/strict');
const path = require('node:path');
const { describe, it } = require('node:test');
const ts = require('typescript');
const description = require('../package.json');

/** The values that a file of types exports. */
function declared(file) {
  const program = ts.createProgram([file], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    types: ['node'],
    skipLibCheck: true,
  });
  const checker = program.getTypeChecker();
  const module = checker.getSymbolAtLocation(program.getSourceFile(file));
  const isOfTypes = (declaration) =>
    ts.isExportSpecifier(declaration) && (declaration.isTypeOnly || declaration.parent.parent.isTypeOnly);
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
  const types = { import: target.import?.types ?? target.types, require: target.require?.types ?? target.types };
  const name = path.posix.join('pronghorn', entry);
  describe(name, () => {
    it('exports what its types say to ES modules', async () => {
      const wanted = declared(path.resolve(__dirname, '..', types.import));
      assert.ok(wanted.length > 0);
      assert.deepEqual(named(await import(name)), wanted);
    });

    it('exports what its types say to CommonJS', () => {
      assert.deepEqual(named(require(name)), declared(path.resolve(__dirname, '..', types.require)));
    });
  });
}
