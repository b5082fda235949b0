import { join } from 'node:path';
import { runCampaign } from '../campaign.js';
import { ExitCode } from '../errors.js';
import { readPlan } from '../read-plan.js';
import { requireNamed } from '../thresholds/parse.js';
import { parse, parseSeed, parseThresholds, text, timestamp, usage } from './arguments.js';
import { interruption } from './interruption.js';
import { show } from './show.js';

export async function run(args: readonly string[]): Promise<ExitCode> {
  const { positional, values } = parse(args, 'run PLAN.toml', {
    out: { type: 'string' },
    seed: { type: 'string' },
    pronghorn: { type: 'string' },
    chromium: { type: 'string' },
    'watch-all': { type: 'boolean' },
    resume: { type: 'boolean' },
    'fail-if': { type: 'string', multiple: true },
  });
  const thresholds = parseThresholds(values['fail-if']);
  const given = text(values.seed);
  const seed = given === undefined ? undefined : parseSeed(given);
  const plan = readPlan(positional);
  const resume = values.resume === true;
  if (resume && text(values.out) === undefined) throw usage('--resume needs the --out DIR of the campaign');
  if (resume && seed !== undefined) throw usage('--resume goes on with the seed of the campaign: leave --seed out');
  for (const threshold of thresholds) requireNamed(threshold, plan);
  const out = text(values.out) ?? join('lab-results', `${plan.name}-${timestamp()}`);
  const campaign = await runCampaign({
    plan,
    out,
    seed,
    resume,
    pronghorn: text(values.pronghorn) ?? text(process.env.PRONGHORN),
    chromium: text(values.chromium) ?? text(process.env.CHROMIUM),
    keepAll: values['watch-all'] === true,
    signal: interruption(),
  });
  const { exitCode } = await show(out, thresholds);
  if (campaign.status === 'interrupted') {
    process.stderr.write(`interrupted: the loads until then are in ${out}; --resume goes on\n`);
    return ExitCode.Interrupted;
  }
  return exitCode;
}
