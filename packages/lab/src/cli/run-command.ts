import { join } from 'node:path';
import { runCampaign } from '../campaign/run-campaign.js';
import { ExitCode } from '../io/errors.js';
import { readPlan } from '../campaign/read-plan.js';
import { requireNamed } from '../thresholds/parse.js';
import { selectProfiles } from '../campaign/select-profiles.js';
import {
  machineUse,
  MACHINE_OPTIONS,
  parse,
  parseSeed,
  parseThresholds,
  nonEmptyString,
  strings,
  timestamp,
  usage,
} from './arguments.js';
import { interruption } from './interruption.js';
import { printReport } from './print-report.js';

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
  const given = nonEmptyString(values.seed);
  const seed = given === undefined ? undefined : parseSeed(given);
  const whole = readPlan(positional);
  const [resume, profiles] = [values.resume === true, strings(values.profile)];
  if (resume && nonEmptyString(values.out) === undefined)
    throw usage('--resume needs the --out DIR of the campaign');
  if (resume && seed !== undefined) throw usage("--resume keeps the campaign's seed: omit --seed");
  if (resume && profiles.length > 0)
    throw usage("--resume keeps the campaign's profiles: omit --profile");
  const out = nonEmptyString(values.out) ?? join('lab-results', `${whole.name}-${timestamp()}`);
  const plan = selectProfiles(whole, { profiles, resume, out });
  for (const threshold of thresholds) requireNamed(threshold, plan);
  let exitCode: ExitCode = ExitCode.Ok;
  const campaign = await runCampaign({
    plan,
    out,
    seed,
    resume,
    pronghorn: nonEmptyString(values.pronghorn) ?? nonEmptyString(process.env.PRONGHORN),
    chromium: nonEmptyString(values.chromium) ?? nonEmptyString(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
    machine: machineUse(values),
    report: async () => {
      ({ exitCode } = await printReport(out, thresholds));
    },
  });
  if (campaign.status === 'interrupted') {
    process.stderr.write(`interrupted: the loads so far are in ${out}; --resume continues\n`);
    return ExitCode.Interrupted;
  }
  return exitCode;
}
