import { runCampaign, type CampaignOptions } from '../campaign/run-campaign.js';
import { readCampaign, type Campaign } from '../campaign/campaign-file.js';
import { ExitCode, LabError } from '../io/errors.js';
import { bundledFile } from '../io/bundled-file.js';
import type { Blocks, Plan } from '../campaign/plan.js';
import { readPlan } from '../campaign/read-plan.js';
import { selectProfiles } from '../campaign/select-profiles.js';
import { suggestion } from '../io/toml-file.js';
import { requireSameCriteria, writeCriteria } from './criteria-file.js';
import type { Study } from './criterion.js';
import { STUDIES } from './studies/all.js';

/** Returns the study of a name; the error for an unknown name suggests known ones. */
export function findStudy(name: string): Study {
  const study = STUDIES[name];
  if (study !== undefined) return study;
  throw new LabError(
    ExitCode.Usage,
    `unknown study \`${name}\``,
    suggestion(name, Object.keys(STUDIES)),
  );
}

function planPath(study: Study): string {
  const name = `reproduce-${study.name}.toml`;
  const path = bundledFile('plans', name);
  if (path !== undefined) return path;
  throw new LabError(
    ExitCode.InputMissing,
    `this installation has no plans/${name}`,
    'reinstall pronghorn-lab',
  );
}

export interface StudyOptions extends Omit<CampaignOptions, 'plan' | 'prepare'> {
  /** Overrides the plan's number of blocks; a resumed campaign keeps its own. */
  readonly blocks: number | undefined;
  /** Names of the plan's profiles; empty for all. A resumed campaign keeps its own. */
  readonly profiles: readonly string[];
}

/** Runs a study's campaign. Writes its criteria into the output folder before the first load. */
export async function runStudy(
  study: Study,
  { blocks, profiles, ...options }: StudyOptions,
): Promise<Campaign> {
  if (options.resume) requireSameCriteria(options.out, study);
  const plan = selectProfiles(readPlan(planPath(study)), { ...options, profiles });
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
