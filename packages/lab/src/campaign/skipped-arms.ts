import { ExitCode, LabError } from '../io/errors.js';
import type { Plan } from './plan.js';
import { findReference, whyNot, type Reference } from '../run/reference-servers.js';

export interface SkippedArm {
  readonly arm: string;
  readonly reason: string;
}

/** A plan as it can run on this machine. */
export interface ResolvedPlan {
  readonly plan: Plan;
  /** Reference servers by the name of the plan's server. */
  readonly references: ReadonlyMap<string, Reference>;
  readonly leftOut: readonly SkippedArm[];
}

/**
 * Finds the plan's reference servers, and removes the arms of optional servers that are not
 * installed or lack the arm's protocol. An arm whose comparison partner is removed is compared with
 * nothing.
 */
export function resolvePlan(plan: Plan, find: typeof findReference = findReference): ResolvedPlan {
  const references = new Map<string, Reference>();
  const leftOut: SkippedArm[] = [];
  for (const { name, reference, optional } of plan.servers) {
    const users = plan.arms.filter(({ server }) => server === name);
    if (reference === undefined || users.length === 0) continue;
    const found = orReason(() => find(reference), optional === true);
    if (typeof found !== 'string') references.set(name, found);
    for (const arm of users) {
      const reason = typeof found === 'string' ? found : whyNot(found, arm);
      if (reason === undefined) continue;
      if (optional !== true)
        throw new LabError(ExitCode.Unavailable, `arm ${arm.name}: ${reason}`, HINT);
      leftOut.push({ arm: arm.name, reason });
    }
  }
  if (leftOut.length === 0) return { plan, references, leftOut };
  const isHere = (name: string): boolean => leftOut.every(({ arm }) => arm !== name);
  const arms = plan.arms
    .filter(({ name, repeats }) => isHere(name) && (repeats === undefined || isHere(repeats)))
    .map((arm) => (isHere(arm.comparedWith ?? arm.name) ? arm : { ...arm, comparedWith: null }));
  if (!isHere(plan.baseline)) {
    const { reason } = leftOut.find(({ arm }) => arm === plan.baseline) as SkippedArm;
    throw new LabError(
      ExitCode.Unavailable,
      `the baseline ${plan.baseline} cannot be skipped: ${reason}`,
      HINT,
    );
  }
  return { plan: { ...plan, arms }, references, leftOut };
}

const HINT =
  'set the environment variable of the server to a program that supports it (see README), or remove the arm from the plan';

function orReason(find: () => Reference, isOptional: boolean): Reference | string {
  try {
    return find();
  } catch (thrown) {
    if (isOptional && thrown instanceof LabError) return thrown.message;
    throw thrown;
  }
}
