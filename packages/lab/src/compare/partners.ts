import { ExitCode, LabError } from '../errors.js';
import { usesTcp, type Arm } from '../plan.js';

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
 * Gives each arm the one that it is compared with: one of the same kind of visit that differs in one thing, so that a verdict is
 * about that. A repeat visit is quicker than a first one over any protocol, and no controller, server or window is the protocol's.
 *
 * Of several such arms it is the one that has most in common with the plan's baseline, and of these one that differs in the
 * protocol. What is left, such as a comparison of two servers over two protocols, the plan has to ask for by `against`.
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
  const distance = (one: Arm): number => (one.name === main.name ? -1 : differing(one, main).length);
  // Comparisons form no cycle: a partner is closer to the baseline, or as close and listed earlier.
  const ranked = [...arms].sort((one, other) => distance(one) - distance(other));
  const nearer = ranked.slice(0, ranked.indexOf(arm)).filter((other) => other.comparedWith !== arm.name);
  const candidates = nearer.filter((other) => other.visit === arm.visit && subjects(arm, other).length <= 1);
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

/** What arms of the same visit may differ in, the protocol first: that is what most plans are about. */
const SETTINGS = ['protocol', 'congestion', 'server', 'initialWindow', 'slowStartAfterIdle'] as const;
type Setting = (typeof SETTINGS)[number];

function differing(one: Arm, other: Arm): Setting[] {
  // How a browser finds HTTP/3 is of the protocol "auto".
  const value = (arm: Arm, setting: Setting): unknown =>
    setting === 'protocol' ? `${arm.protocol} ${arm.discovery ?? ''}` : arm[setting];
  return SETTINGS.filter((setting) => value(one, setting) !== value(other, setting));
}

/** What a verdict on the two would be about. What TCP alone has is among what TCP and QUIC differ in. */
function subjects(one: Arm, other: Arm): Setting[] {
  const both = usesTcp(one) && usesTcp(other);
  return differing(one, other).filter((setting) => setting !== 'slowStartAfterIdle' || both);
}

function settingInWords(setting: Setting, { congestion, server, initialWindow }: Arm): string {
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
  const { name, visit } = lonely;
  const other = visit === main.visit ? main : arms.find((each) => each.visit === visit && each.name !== name);
  if (other === undefined) {
    throw new LabError(
      ExitCode.Malformed,
      `plan ${plan}: \`arms\`: "${name}" is a ${visitInWords(lonely)}, and the plan has no other arm of that kind to compare it with`,
      `add one with \`visit = "${visit}"\`, say \`against\` with an arm whose visit is ${repeatOrFirst(lonely)}, or put it into a plan of its own`,
    );
  }
  const about = subjects(lonely, other);
  const words = about.map((setting) => settingInWords(setting, lonely)).join(' and ');
  const bridge = about.includes('protocol')
    ? `an arm like "${name}" with \`protocol = "${other.protocol}"\``
    : `an arm that differs from "${name}" by one of them only`;
  throw new LabError(
    ExitCode.Malformed,
    `plan ${plan}: \`arms\`: "${name}" differs from "${other.name}" by ${words}, so that a verdict would be about none of them`,
    `add ${bridge}, or say \`against = "${other.name}"\` if that is what is meant`,
  );
}

function visitInWords({ visit }: Arm): string {
  return visit === 'first' ? 'first visit' : `repeat visit ("${visit}")`;
}

function repeatOrFirst({ visit }: Arm): string {
  return visit === 'first' ? '"first"' : '"resumed" or "early-data"';
}
