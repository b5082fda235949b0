import { join } from 'node:path';
import { runConformance } from '../conformance/check-conformance.js';
import { MIN_SECONDS } from '../conformance/run-conformance.js';
import type { ExitCode } from '../io/errors.js';
import { CONGESTION_CONTROLS, type Congestion } from '../campaign/plan.js';
import { findPronghorn } from '../run/programs.js';
import { freshSeed } from '../campaign/seed.js';
import { suggestion } from '../io/toml-file.js';
import {
  machineUse,
  MACHINE_OPTIONS,
  parseSeed,
  parseWhole,
  parseWords,
  nonEmptyString,
  timestamp,
  usage,
} from './arguments.js';
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
  if (positionals[0] !== undefined)
    throw usage(`unexpected argument \`${positionals[0]}\` for conformance`);
  const seed = nonEmptyString(values.seed);
  const options = {
    congestion: parseControllers(
      nonEmptyString(values.congestion) ?? CONGESTION_CONTROLS.join(','),
    ),
    repeats: parseWhole('--repeats', nonEmptyString(values.repeats) ?? '3', 1, 100),
    seconds: parseWhole('--seconds', nonEmptyString(values.seconds) ?? '10', MIN_SECONDS, 600),
    seed: seed === undefined ? freshSeed() : parseSeed(seed),
    pronghorn: findPronghorn(
      nonEmptyString(values.pronghorn) ?? nonEmptyString(process.env.PRONGHORN),
    ),
    signal: interruption(),
    machine: machineUse(values),
  };
  const out = nonEmptyString(values.out) ?? join('lab-results', `conformance-${timestamp()}`);
  const { text: table, exitCode } = await runConformance(out, options);
  process.stdout.write(table);
  return exitCode;
}

function parseControllers(given: string): Congestion[] {
  const names = [...new Set(given.split(',').map((name) => name.trim()))];
  return names.map((name) => {
    const known = CONGESTION_CONTROLS.find((each) => each === name);
    if (known !== undefined) return known;
    throw usage(
      `--congestion: unknown controller \`${name}\``,
      suggestion(name, CONGESTION_CONTROLS),
    );
  });
}
