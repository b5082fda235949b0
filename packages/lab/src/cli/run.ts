import { join } from 'node:path';
import { runCampaign } from '../campaign.js';
import { ExitCode } from '../errors.js';
import { readPlan } from '../read-plan.js';
import { requireNamed } from '../thresholds/parse.js';
import { withSomeProfiles } from '../some-profiles.js';
import {
  machineUse,
  MACHINE_OPTIONS,
  parse,
  parseSeed,
  parseThresholds,
  text,
  texts,
  timestamp,
  usage,
} from './arguments.js';
import { interruption } from './interruption.js';
import { show } from './show.js';

export async function run(args: readonly string[]): Promise<ExitCode> {
  const { positional, values } = parse(args, 'run PLAN.toml', {
    out: { type: 'string' },
    seed: { type: 'string' },
    profile: { type: 'string', multiple: true },
    pronghorn: { type: 'string' },
    chromium: { type: 'string' },
    'watch-all': { type: 'boolean' },
    resume: { type: 'boolean' },
    'fail-if': { type: 'string', multiple: true },
    ...MACHINE_OPTIONS,
  });
  const thresholds = parseThresholds(values['fail-if']);
  const given = text(values.seed);
  const seed = given === undefined ? undefined : parseSeed(given);
  const whole = readPlan(positional);
  const [resume, profiles] = [values.resume === true, texts(values.profile)];
  if (resume && text(values.out) === undefined) throw usage('--resume needs the --out DIR of the campaign');
  if (resume && seed !== undefined) throw usage('--resume goes on with the seed of the campaign: leave --seed out');
  if (resume && profiles.length > 0)
    throw usage('--resume goes on with the profiles of the campaign: leave --profile out');
  const out = text(values.out) ?? join('lab-results', `${whole.name}-${timestamp()}`);
  const plan = withSomeProfiles(whole, { profiles, resume, out });
  for (const threshold of thresholds) requireNamed(threshold, plan);
  let exitCode: ExitCode = ExitCode.Ok;
  const campaign = await runCampaign({
    plan,
    out,
    seed,
    resume,
    pronghorn: text(values.pronghorn) ?? text(process.env.PRONGHORN),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
    machine: machineUse(values),
    report: async () => {
      ({ exitCode } = await show(out, thresholds));
    },
  });
  if (campaign.status === 'interrupted') {
    process.stderr.write(`interrupted: the loads until then are in ${out}; --resume goes on\n`);
    return ExitCode.Interrupted;
  }
  return exitCode;
}
