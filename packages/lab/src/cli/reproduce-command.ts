import { join } from 'node:path';
import { ExitCode } from '../io/errors.js';
import { findStudy, runStudy } from '../reproduce/reproduce.js';
import { STUDIES } from '../reproduce/studies/all.js';
import {
  machineUse,
  MACHINE_OPTIONS,
  parse,
  parseSeed,
  parseWhole,
  nonEmptyString,
  strings,
  timestamp,
  usage,
} from './arguments.js';
import { interruption } from './interruption.js';
import { printReport } from './print-report.js';

export async function reproduce(args: readonly string[]): Promise<ExitCode> {
  const { positional, values } = parse(args, `reproduce ${Object.keys(STUDIES).join('|')}`, {
    out: { type: 'string' },
    blocks: { type: 'string' },
    profile: { type: 'string', multiple: true },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
    chromium: { type: 'string' },
    'watch-all': { type: 'boolean' },
    resume: { type: 'boolean' },
    ...MACHINE_OPTIONS,
  });
  const study = findStudy(positional);
  const [blocks, seed, resume] = [
    nonEmptyString(values.blocks),
    nonEmptyString(values.seed),
    values.resume === true,
  ];
  const profiles = strings(values.profile);
  if (resume && nonEmptyString(values.out) === undefined)
    throw usage('--resume needs the --out DIR of the campaign');
  if (resume && (seed !== undefined || blocks !== undefined || profiles.length > 0)) {
    throw usage("--resume keeps the campaign's settings: omit --seed, --blocks and --profile");
  }
  const out =
    nonEmptyString(values.out) ?? join('lab-results', `reproduce-${study.name}-${timestamp()}`);
  let exitCode: ExitCode = ExitCode.Ok;
  const campaign = await runStudy(study, {
    blocks: blocks === undefined ? undefined : parseWhole('--blocks', blocks, 1, 10_000),
    profiles,
    out,
    seed: seed === undefined ? undefined : parseSeed(seed),
    resume,
    pronghorn: nonEmptyString(values.pronghorn) ?? nonEmptyString(process.env.PRONGHORN),
    chromium: nonEmptyString(values.chromium) ?? nonEmptyString(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
    machine: machineUse(values),
    report: async () => {
      ({ exitCode } = await printReport(out, []));
    },
  });
  if (campaign.status !== 'interrupted') return exitCode;
  process.stderr.write(`interrupted: the loads so far are in ${out}; --resume continues\n`);
  return ExitCode.Interrupted;
}
