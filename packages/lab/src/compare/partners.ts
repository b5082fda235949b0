import { ExitCode, LabError } from '../io/errors.js';
import { usesTcp, type Arm } from '../campaign/plan.js';

/**
 * Returns the arm that `arm` is compared with, in a plan with known partners; undefined if it is
 * only compared with. Campaigns from before there were partners compare each arm with the baseline.
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
  if (known !== undefined || arms.some(({ comparedWith }) => comparedWith !== undefined))
    return known ?? undefined;
  return arm.name === baseline ? undefined : baseline;
}

/**
 * Gives each arm its partner, the arm that it is compared with: one of the same kind of visit that
 * differs in one setting, so that the verdict is about that setting. A repeat visit is faster than
 * a first one over any protocol, and a controller, server or window has effects of its own.
 *
 * Among several candidates, the partner is the arm with most in common with the plan's baseline,
 * and among those, one that differs in the protocol. The plan has to request other comparisons by
 * `against`, such as two servers over two protocols.
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
  const distance = (one: Arm): number =>
    one.name === main.name ? -1 : differing(one, main).length;
  // Comparisons form no cycle: a partner is closer to the baseline, or as close and listed earlier.
  const ranked = [...arms].sort((one, other) => distance(one) - distance(other));
  const nearer = ranked
    .slice(0, ranked.indexOf(arm))
    .filter((other) => other.comparedWith !== arm.name);
  const candidates = nearer.filter(
    (other) => other.visit === arm.visit && subjects(arm, other).length <= 1,
  );
  const order = (other: Arm): number[] => [
    distance(other),
    SETTINGS.indexOf(subjects(arm, other)[0] as Setting),
    differing(arm, other).length,
  ];
  return candidates.sort((one, other) => compareInOrder(order(one), order(other)))[0]?.name;
}

function compareInOrder(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((value, index) => value !== other[index]);
  return at < 0 ? 0 : (one[at] ?? 0) - (other[at] ?? 0);
}

/**
 * Settings in which arms of the same visit may differ. The protocol comes first: most plans are
 * about it.
 */
const SETTINGS = [
  'protocol',
  'congestion',
  'server',
  'initialWindow',
  'slowStartAfterIdle',
] as const;
type Setting = (typeof SETTINGS)[number];

function differing(one: Arm, other: Arm): Setting[] {
  // Discovery of HTTP/3 exists only for the protocol "auto", so it counts as part of the protocol.
  const value = (arm: Arm, setting: Setting): unknown =>
    setting === 'protocol' ? `${arm.protocol} ${arm.discovery ?? ''}` : arm[setting];
  return SETTINGS.filter((setting) => value(one, setting) !== value(other, setting));
}

/**
 * Returns the settings that a verdict on the two arms would be about. TCP-only settings count as
 * part of the protocol when TCP is compared with QUIC.
 */
function subjects(one: Arm, other: Arm): Setting[] {
  const both = usesTcp(one) && usesTcp(other);
  return differing(one, other).filter((setting) => setting !== 'slowStartAfterIdle' || both);
}

function describeSetting(setting: Setting, { congestion, server, initialWindow }: Arm): string {
  switch (setting) {
    case 'protocol':
      return 'its protocol';
    case 'congestion':
      return `its congestion controller (${congestion})`;
    case 'server':
      return `its server (${server})`;
    case 'initialWindow':
      return `its initial window (${initialWindow ?? 'not set'})`;
    case 'slowStartAfterIdle':
      return '`tcp_slow_start_after_idle`';
  }
}

/** Checks the `against` of a plan's arm. */
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
    throw wrong(`"${other.name}" is already compared with this arm`, 'remove one of the two');
  }
  if ((arm.visit === 'first') !== (other.visit === 'first')) {
    const hint = `give the two the same \`visit\`, or name an arm whose visit is ${repeatOrFirst(arm)}`;
    throw wrong(
      `"${other.name}" is a ${describeVisit(other)}, and this arm a ${describeVisit(arm)}`,
      hint,
    );
  }
}

/** Refuses a plan with arms that cannot be compared with any other. */
function requireEachCompared(arms: readonly Arm[], main: Arm, plan: string): void {
  const lonely = arms.find(
    ({ name, repeats, comparedWith }) =>
      repeats === undefined &&
      comparedWith === null &&
      name !== main.name &&
      !arms.some((other) => other.comparedWith === name),
  );
  if (lonely === undefined) return;
  const { name, visit } = lonely;
  const other =
    visit === main.visit ? main : arms.find((each) => each.visit === visit && each.name !== name);
  if (other === undefined) {
    throw new LabError(
      ExitCode.Malformed,
      `plan ${plan}: \`arms\`: "${name}" is a ${describeVisit(lonely)}, and the plan has no other arm to compare it with`,
      `add one with \`visit = "${visit}"\`, use \`against\` with an arm whose visit is ${repeatOrFirst(lonely)}, or move it to a separate plan`,
    );
  }
  const about = subjects(lonely, other);
  const words = about.map((setting) => describeSetting(setting, lonely)).join(' and ');
  const bridge = about.includes('protocol')
    ? `an arm like "${name}" with \`protocol = "${other.protocol}"\``
    : `an arm that differs from "${name}" in only one of these`;
  throw new LabError(
    ExitCode.Malformed,
    `plan ${plan}: \`arms\`: "${name}" differs from "${other.name}" in ${words}, so a verdict could not be attributed to any of them`,
    `add ${bridge}, or use \`against = "${other.name}"\` if this comparison is intended`,
  );
}

function describeVisit({ visit }: Arm): string {
  return visit === 'first' ? 'first visit' : `repeat visit ("${visit}")`;
}

function repeatOrFirst({ visit }: Arm): string {
  return visit === 'first' ? '"first"' : '"resumed" or "early-data"';
}
