import { pooledControl } from '../compare/control.js';
import { controlInWords } from '../compare/words.js';
import { ExitCode } from '../errors.js';
import { parseThresholds, parseWords, usage } from './arguments.js';
import { show, type Shown } from './show.js';

export async function report(args: readonly string[]): Promise<ExitCode> {
  const options = { 'fail-if': { type: 'string', multiple: true } } as const;
  const { positionals, values } = parseWords(args, options);
  if (positionals.length === 0) throw usage('the form is: pronghorn-lab report DIR...');
  const thresholds = parseThresholds(values['fail-if']);
  const shown: Shown[] = [];
  for (const out of positionals) shown.push(await show(out, thresholds));
  if (shown.length > 1) {
    const control = pooledControl(shown.map(({ results }) => results.comparisons.control));
    const comparisons = shown.flatMap(({ results }) => results.comparisons.comparisons);
    process.stdout.write(`\nAll together. ${controlInWords(control, comparisons)}\n`);
  }
  return worstOf(shown.map(({ exitCode }) => exitCode));
}

/** The first of these that any of them has; well, if none has. */
function worstOf(codes: readonly ExitCode[]): ExitCode {
  const order: readonly ExitCode[] = [ExitCode.ThresholdBroken, ExitCode.NothingToCompare];
  return order.find((code) => codes.includes(code)) ?? ExitCode.Ok;
}
