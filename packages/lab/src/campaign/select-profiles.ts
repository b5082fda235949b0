import { readCampaign } from './campaign-file.js';
import { ExitCode, LabError } from '../io/errors.js';
import type { Plan } from './plan.js';
import { suggestion } from '../io/toml-file.js';

/** Which of a plan's profiles a campaign uses. */
export interface ProfileSelection {
  /** Names of the profiles; empty for all. */
  readonly profiles: readonly string[];
  /** Whether the campaign in `out` is resumed with the profiles that it has. */
  readonly resume: boolean;
  readonly out: string;
}

/** Returns the plan with only some of its profiles, in the plan's order. */
export function selectProfiles(plan: Plan, { profiles, resume, out }: ProfileSelection): Plan {
  const names = resume ? readCampaign(out).profiles.map(({ name }) => name) : profiles;
  if (names.length === 0) return plan;
  if (!resume) {
    const known = plan.profiles.map(({ name }) => name);
    const unknown = names.find((name) => !known.includes(name));
    if (unknown !== undefined) {
      throw new LabError(
        ExitCode.Usage,
        `the plan has no profile "${unknown}"`,
        suggestion(unknown, known),
      );
    }
  }
  return { ...plan, profiles: plan.profiles.filter(({ name }) => names.includes(name)) };
}
