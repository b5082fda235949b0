import { ExitCode, LabError } from '../errors.js';
import type { Arm } from '../plan.js';

/**
 * The arm with which one is compared, of a plan whose partners are known; undefined for one that is only compared with.
 * Campaigns of before there were partners compare each arm with the baseline.
 */
export function partnerOf(
  arm: {
    readonly name: string;
    readonly repeats?: string | undefined;
    readonly comparedWith?: string | null | undefined;
  },
  arms: readonly { readonly comparedWith?: string | null | undefined }[],
  baseline: string,
): string | undefined {
  const known = arm.repeats ?? arm.comparedWith;
  if (known !== undefined || arms.some(({ comparedWith }) => comparedWith !== undefined)) return known ?? undefined;
  return arm.name === baseline ? undefined : baseline;
}

/**
 * Gives each arm the one that it is compared with: one of the same kind of visit and with the same congestion controller, so that
 * a verdict is about the protocol. A repeat visit is quicker than a first one over any protocol, and a controller is not the
 * protocol's.
 *
 * The arms of one visit and controller have a baseline in common: the plan's, if it is one of them, else the arm like the plan's,
 * else the first. Such a baseline is compared with that of the plan's controller, where the controller is all that differs. What
 * is left, such as a comparison of two controllers over two protocols, the plan has to ask for by `against`.
 */
export function withPartners(arms: readonly Arm[], baseline: string, plan: string): Arm[] {
  const ordinary = arms.filter(({ repeats }) => repeats === undefined);
  const main = ordinary.find(({ name }) => name === baseline) as Arm;
  for (const arm of ordinary) requireComparable(arm, ordinary, plan);
  const paired = arms.map((arm) => {
    if (arm.repeats !== undefined) return arm;
    return { ...arm, comparedWith: arm.comparedWith ?? partnerByRule(arm, ordinary, main) ?? null };
  });
  requireEachCompared(paired, main, plan);
  return paired;
}

function partnerByRule(arm: Arm, arms: readonly Arm[], main: Arm): string | undefined {
  if (arm.name === main.name) return undefined;
  const own = baselineOf(arm.visit, arm.congestion, arms, main);
  if (own !== undefined && own.name !== arm.name) return own.name;
  const other = baselineOf(arm.visit, main.congestion, arms, main);
  return other !== undefined && other.name !== arm.name && differsByController(arm, other) ? other.name : undefined;
}

function baselineOf(
  visit: Arm['visit'],
  congestion: Arm['congestion'],
  arms: readonly Arm[],
  main: Arm,
): Arm | undefined {
  const group = arms.filter((arm) => arm.visit === visit && arm.congestion === congestion);
  const like = group.find(({ protocol, server }) => protocol === main.protocol && server === main.server);
  return group.find(({ name }) => name === main.name) ?? like ?? group[0];
}

function differsByController(one: Arm, other: Arm): boolean {
  const keys = ['protocol', 'visit', 'server', 'initialWindow', 'slowStartAfterIdle', 'discovery'] as const;
  return keys.every((key) => one[key] === other[key]);
}

/** Checks what a plan says by `against`. */
function requireComparable(arm: Arm, arms: readonly Arm[], plan: string): void {
  if (arm.comparedWith === undefined || arm.comparedWith === null) return;
  const wrong = (what: string, hint: string): LabError =>
    new LabError(ExitCode.Malformed, `plan ${plan}: arm ${arm.name}: \`against\`: ${what}`, hint);
  const other = arms.find(({ name }) => name === arm.comparedWith);
  const names = arms.filter(({ name }) => name !== arm.name).map(({ name }) => `"${name}"`);
  if (other === undefined || other === arm) {
    throw wrong(`there is no other arm "${arm.comparedWith}"`, `name one of ${names.join(', ')}`);
  }
  if (other.comparedWith === arm.name) {
    throw wrong(`"${other.name}" is compared with this one already`, 'leave one of the two out');
  }
  if ((arm.visit === 'first') !== (other.visit === 'first')) {
    const hint = `give the two the same \`visit\`, or name an arm whose visit is ${repeatOrFirst(arm)}`;
    throw wrong(`"${other.name}" is a ${visitInWords(other)}, and this arm a ${visitInWords(arm)}`, hint);
  }
}

/** Refuses a plan with arms that have nothing to be compared with. */
function requireEachCompared(arms: readonly Arm[], main: Arm, plan: string): void {
  const lonely = arms.find(
    ({ name, repeats, comparedWith }) =>
      repeats === undefined &&
      comparedWith === null &&
      name !== main.name &&
      !arms.some((other) => other.comparedWith === name),
  );
  if (lonely === undefined) return;
  const { name, visit, congestion } = lonely;
  if (visit !== main.visit) {
    throw new LabError(
      ExitCode.Malformed,
      `plan ${plan}: \`arms\`: "${name}" is a ${visitInWords(lonely)}, and the plan has no other arm of that kind to compare it with`,
      `add one with \`visit = "${visit}"\`, say \`against\` with an arm whose visit is ${repeatOrFirst(lonely)}, or put it into a plan of its own`,
    );
  }
  throw new LabError(
    ExitCode.Malformed,
    `plan ${plan}: \`arms\`: "${name}" differs from "${main.name}" by its congestion controller (${congestion}) and by more, so that a verdict would be about neither`,
    `add an arm like "${main.name}" with \`congestion = "${congestion}"\`, or say \`against = "${main.name}"\` if that is what is meant`,
  );
}

function visitInWords({ visit }: Arm): string {
  return visit === 'first' ? 'first visit' : `repeat visit ("${visit}")`;
}

function repeatOrFirst({ visit }: Arm): string {
  return visit === 'first' ? '"first"' : '"resumed" or "early-data"';
}
