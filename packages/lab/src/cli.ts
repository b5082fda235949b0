#!/usr/bin/env node
import { usage } from './cli/arguments.js';
import { record } from './cli/capture-command.js';
import { conformance } from './cli/conformance-command.js';
import { har } from './cli/har-command.js';
import { HELP } from './cli/help.js';
import { page } from './cli/page-command.js';
import { report } from './cli/report-command.js';
import { reproduce } from './cli/reproduce-command.js';
import { run } from './cli/run-command.js';
import { diskFailure } from './io/disk.js';
import { ownVersion } from './campaign/environment.js';
import { ExitCode, LabError } from './io/errors.js';
import { suggestion } from './io/toml-file.js';

const COMMANDS = new Map<string, (args: readonly string[]) => ExitCode | Promise<ExitCode>>([
  ['run', run],
  ['page', page],
  ['capture', record],
  ['report', report],
  ['har', har],
  ['reproduce', reproduce],
  ['conformance', conformance],
]);

async function main(args: readonly string[]): Promise<ExitCode> {
  const [name, ...rest] = args;
  if (name === undefined || name === '--help' || name === '-h' || rest.includes('--help')) {
    const asked = name !== undefined;
    (asked ? process.stdout : process.stderr).write(HELP);
    return asked ? ExitCode.Ok : ExitCode.Usage;
  }
  if (name === '--version') {
    process.stdout.write(`pronghorn-lab ${ownVersion()}\n`);
    return ExitCode.Ok;
  }
  const command = COMMANDS.get(name);
  if (command === undefined)
    throw usage(`unknown command \`${name}\``, suggestion(name, [...COMMANDS.keys()]));
  return command(rest);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (thrown) {
  const known = thrown instanceof LabError ? thrown : diskFailure(thrown, 'run the command again');
  const lines =
    known === undefined
      ? [`error: this is a bug: ${(thrown as Error).stack ?? String(thrown)}`]
      : [known.line(), ...known.details.map((line) => `  ${line}`)];
  process.stderr.write(`${lines.join('\n')}\n`);
  process.exitCode = known?.exitCode ?? ExitCode.Internal;
}
