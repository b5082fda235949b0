import { pooledControl } from '../compare/control.js';
import { describeControl } from '../compare/comparison-text.js';
import { ExitCode } from '../io/errors.js';
import { parseThresholds, parseWords, usage } from './arguments.js';
import { printReport, type PrintedReport } from './print-report.js';

export async function report(args: readonly string[]): Promise<ExitCode> {
  const options = { 'fail-if': { type: 'string', multiple: true } } as const;
  const { positionals, values } = parseWords(args, options);
  if (positionals.length === 0) throw usage('usage: pronghorn-lab report DIR...');
  const thresholds = parseThresholds(values['fail-if']);
  const shown: PrintedReport[] = [];
  for (const out of positionals) shown.push(await printReport(out, thresholds));
  if (shown.length > 1) {
    const control = pooledControl(shown.map(({ results }) => results.comparisons.control));
    const comparisons = shown.flatMap(({ results }) => results.comparisons.comparisons);
    process.stdout.write(`\nAll campaigns together. ${describeControl(control, comparisons)}\n`);
  }
  return worstOf(shown.map(({ exitCode }) => exitCode));
}

/** Returns the most severe of the exit codes, success if there is none. */
function worstOf(codes: readonly ExitCode[]): ExitCode {
  const order: readonly ExitCode[] = [ExitCode.ThresholdBroken, ExitCode.NothingToCompare];
  return order.find((code) => codes.includes(code)) ?? ExitCode.Ok;
}
