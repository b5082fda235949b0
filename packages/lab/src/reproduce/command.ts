import { runCampaign, type CampaignOptions } from '../campaign.js';
import { readCampaign, type Campaign } from '../campaign-file.js';
import { ExitCode, LabError } from '../errors.js';
import { ownFile } from '../own-file.js';
import type { Blocks, Plan } from '../plan.js';
import { readPlan } from '../read-plan.js';
import { withSomeProfiles } from '../some-profiles.js';
import { suggestion } from '../toml-file.js';
import { requireSameCriteria, writeCriteria } from './criteria-file.js';
import type { Study } from './criterion.js';
import { STUDIES } from './studies/all.js';

/** The study of a name, or one error that names those that there are. */
export function findStudy(name: string): Study {
  const study = STUDIES[name];
  if (study !== undefined) return study;
  throw new LabError(ExitCode.Usage, `there is no study ${name}`, suggestion(name, Object.keys(STUDIES)));
}

function planPath(study: Study): string {
  const name = `reproduce-${study.name}.toml`;
  const path = ownFile('plans', name);
  if (path !== undefined) return path;
  throw new LabError(ExitCode.InputMissing, `this installation has no plans/${name}`, 'install it again');
}

export interface StudyOptions extends Omit<CampaignOptions, 'plan' | 'prepare'> {
  /** Instead of the plan's; a campaign that goes on has its own. */
  readonly blocks: number | undefined;
  /** Names of the plan's profiles; empty for all. A campaign that goes on has its own. */
  readonly profiles: readonly string[];
}

/** Runs a study's campaign. Its criteria lie in the output folder before the first load is made. */
export async function runStudy(study: Study, { blocks, profiles, ...options }: StudyOptions): Promise<Campaign> {
  if (options.resume) requireSameCriteria(options.out, study);
  const plan = withSomeProfiles(readPlan(planPath(study)), { ...options, profiles });
  return runCampaign({
    ...options,
    plan: { ...plan, blocks: blocksOf(plan, blocks, options) },
    prepare: (folder) => {
      writeCriteria(folder, study);
    },
  });
}

function blocksOf(
  plan: Plan,
  asked: number | undefined,
  { resume, out }: Pick<StudyOptions, 'resume' | 'out'>,
): Blocks {
  if (resume) return { intervalPercent: undefined, ...readCampaign(out).blocks };
  return asked === undefined ? plan.blocks : { min: asked, max: asked, intervalPercent: undefined };
}
