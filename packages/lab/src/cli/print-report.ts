import { join } from 'node:path';
import { readCampaign } from '../campaign/campaign-file.js';
import { ExitCode } from '../io/errors.js';
import { REPORT, writeReports } from '../report/write-report.js';
import { hasCriteria } from '../reproduce/criteria-file.js';
import { REPRODUCTION, writeReproduction } from '../reproduce/write-reproduction.js';
import { comparedCell, type Results } from '../report/results.js';
import { judge } from '../thresholds/judge.js';
import { parseThreshold, requireNamed, type Threshold } from '../thresholds/parse.js';

export interface PrintedReport {
  readonly results: Results;
  readonly exitCode: ExitCode;
}

/**
 * Writes tables and report from the samples, prints the tables, and returns results and exit code.
 */
export async function printReport(
  out: string,
  given: readonly Threshold[],
): Promise<PrintedReport> {
  const campaign = readCampaign(out);
  for (const threshold of given) requireNamed(threshold, campaign);
  const thresholds = [...campaign.failIf.map((condition) => parseThreshold(condition)), ...given];
  const { results, table, comparable } = await writeReports(out);
  process.stdout.write(`\n${table}\nreport: ${join(out, REPORT)}\n`);
  if (hasCriteria(out))
    process.stdout.write(
      `\n${await writeReproduction(out)}\nwritten: ${join(out, REPRODUCTION)}\n`,
    );
  const cells = results.cells.map(comparedCell);
  const findings = thresholds.flatMap((threshold) => judge(threshold, cells, campaign.seed));
  for (const { kind, line } of findings)
    process.stderr.write(`${kind === 'broken' ? 'failed' : 'note'}: ${line}\n`);
  const broken = findings.some(({ kind }) => kind === 'broken');
  const exitCode = broken
    ? ExitCode.ThresholdBroken
    : comparable
      ? ExitCode.Ok
      : ExitCode.NothingToCompare;
  return { results, exitCode };
}
