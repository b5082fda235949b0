import { join } from 'node:path';
import { ExitCode } from '../errors.js';
import { findStudy, runStudy } from '../reproduce/command.js';
import { STUDIES } from '../reproduce/studies/all.js';
import {
  machineUse,
  MACHINE_OPTIONS,
  parse,
  parseSeed,
  parseWhole,
  text,
  texts,
  timestamp,
  usage,
} from './arguments.js';
import { interruption } from './interruption.js';
import { show } from './show.js';

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
  const [blocks, seed, resume] = [text(values.blocks), text(values.seed), values.resume === true];
  const profiles = texts(values.profile);
  if (resume && text(values.out) === undefined) throw usage('--resume needs the --out DIR of the campaign');
  if (resume && (seed !== undefined || blocks !== undefined || profiles.length > 0)) {
    throw usage('--resume goes on with what the campaign began with: leave --seed, --blocks and --profile out');
  }
  const out = text(values.out) ?? join('lab-results', `reproduce-${study.name}-${timestamp()}`);
  let exitCode: ExitCode = ExitCode.Ok;
  const campaign = await runStudy(study, {
    blocks: blocks === undefined ? undefined : parseWhole('--blocks', blocks, 1, 10_000),
    profiles,
    out,
    seed: seed === undefined ? undefined : parseSeed(seed),
    resume,
    pronghorn: text(values.pronghorn) ?? text(process.env.PRONGHORN),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
    machine: machineUse(values),
    report: async () => {
      ({ exitCode } = await show(out, []));
    },
  });
  if (campaign.status !== 'interrupted') return exitCode;
  process.stderr.write(`interrupted: the loads until then are in ${out}; --resume goes on\n`);
  return ExitCode.Interrupted;
}
