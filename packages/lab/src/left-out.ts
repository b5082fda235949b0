import { ExitCode, LabError } from './errors.js';
import type { Plan } from './plan.js';
import { findReference, whyNot, type Reference } from './reference-servers.js';

export interface LeftOut {
  readonly arm: string;
  readonly reason: string;
}

/** What a plan comes to on this machine. */
export interface PlanHere {
  readonly plan: Plan;
  /** By the name of the server. */
  readonly references: ReadonlyMap<string, Reference>;
  readonly leftOut: readonly LeftOut[];
}

/**
 * Finds the plan's reference servers, and leaves out the arms of those that are optional and not here, or that lack the arm's
 * protocol here. An arm that was to be compared with one that is left out is compared with nothing.
 */
export function planHere(plan: Plan, find: typeof findReference = findReference): PlanHere {
  const references = new Map<string, Reference>();
  const leftOut: LeftOut[] = [];
  for (const { name, reference, optional } of plan.servers) {
    const users = plan.arms.filter(({ server }) => server === name);
    if (reference === undefined || users.length === 0) continue;
    const found = orReason(() => find(reference), optional === true);
    if (typeof found !== 'string') references.set(name, found);
    for (const arm of users) {
      const reason = typeof found === 'string' ? found : whyNot(found, arm);
      if (reason === undefined) continue;
      if (optional !== true) throw new LabError(ExitCode.Unavailable, `arm ${arm.name}: ${reason}`, HINT);
      leftOut.push({ arm: arm.name, reason });
    }
  }
  if (leftOut.length === 0) return { plan, references, leftOut };
  const isHere = (name: string): boolean => leftOut.every(({ arm }) => arm !== name);
  const arms = plan.arms
    .filter(({ name, repeats }) => isHere(name) && (repeats === undefined || isHere(repeats)))
    .map((arm) => (isHere(arm.comparedWith ?? arm.name) ? arm : { ...arm, comparedWith: null }));
  if (!isHere(plan.baseline)) {
    const { reason } = leftOut.find(({ arm }) => arm === plan.baseline) as LeftOut;
    throw new LabError(ExitCode.Unavailable, `the baseline ${plan.baseline} cannot be left out: ${reason}`, HINT);
  }
  return { plan: { ...plan, arms }, references, leftOut };
}

const HINT = 'name a program that has it by its variable (see README), or leave the arm out of the plan';

function orReason(find: () => Reference, isOptional: boolean): Reference | string {
  try {
    return find();
  } catch (thrown) {
    if (isOptional && thrown instanceof LabError) return thrown.message;
    throw thrown;
  }
}
