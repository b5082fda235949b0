import { join } from 'node:path';
import { runConformance } from '../conformance/command.js';
import { LEAST_SECONDS } from '../conformance/run.js';
import type { ExitCode } from '../errors.js';
import { CONGESTION_CONTROLS, type Congestion } from '../plan.js';
import { findPronghorn } from '../programs.js';
import { freshSeed } from '../seed.js';
import { suggestion } from '../toml-file.js';
import { machineUse, MACHINE_OPTIONS, parseSeed, parseWhole, parseWords, text, timestamp, usage } from './arguments.js';
import { interruption } from './interruption.js';

export async function conformance(args: readonly string[]): Promise<ExitCode> {
  const { positionals, values } = parseWords(args, {
    congestion: { type: 'string' },
    repeats: { type: 'string' },
    seconds: { type: 'string' },
    out: { type: 'string' },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
    ...MACHINE_OPTIONS,
  });
  if (positionals[0] !== undefined) throw usage(`the command conformance has no use for ${positionals[0]}`);
  const seed = text(values.seed);
  const options = {
    congestion: parseControllers(text(values.congestion) ?? CONGESTION_CONTROLS.join(',')),
    repeats: parseWhole('--repeats', text(values.repeats) ?? '3', 1, 100),
    seconds: parseWhole('--seconds', text(values.seconds) ?? '10', LEAST_SECONDS, 600),
    seed: seed === undefined ? freshSeed() : parseSeed(seed),
    pronghorn: findPronghorn(text(values.pronghorn) ?? text(process.env.PRONGHORN)),
    signal: interruption(),
    machine: machineUse(values),
  };
  const out = text(values.out) ?? join('lab-results', `conformance-${timestamp()}`);
  const { text: table, exitCode } = await runConformance(out, options);
  process.stdout.write(table);
  return exitCode;
}

function parseControllers(given: string): Congestion[] {
  const names = [...new Set(given.split(',').map((name) => name.trim()))];
  return names.map((name) => {
    const known = CONGESTION_CONTROLS.find((each) => each === name);
    if (known !== undefined) return known;
    throw usage(`--congestion: there is no controller ${name}`, suggestion(name, CONGESTION_CONTROLS));
  });
}
