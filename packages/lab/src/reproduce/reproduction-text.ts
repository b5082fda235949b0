import { useMarkdown, type CellUse } from '../report/bound.js';
import type { Campaign } from '../campaign/campaign-file.js';
import { MIN_CONTROL_BLOCKS } from '../compare/compare-campaign.js';
import { markdownTable } from '../report/markdown-table.js';
import type { CriteriaFile } from './criteria-file.js';
import {
  METRIC_WORDS,
  VERDICTS,
  type Claim,
  type Criterion,
  type PublishedRow,
  type Verdict,
} from './criterion.js';
import type { Evaluated, MeasuredRow, Reproduction } from './evaluate.js';

const FIGURES = ['median', 'mean', 'p90', 'p99', 'min', 'max'] as const;

/** The data of a document about a reproduction. */
export interface ReproductionData {
  readonly campaign: Campaign;
  readonly criteria: CriteriaFile;
  readonly reproduction: Reproduction;
  /** Number of the last block with a load. */
  readonly blocks: number;
  /**
   * Number of blocks of a profile and page that are excluded because the machine was starved or the
   * link late.
   */
  readonly roundsLeftOut: number;
  /** Resource use of the loads of each cell. */
  readonly use: readonly CellUse[];
}

/**
 * Returns `reproduction.md`: the published next to the measured figures, the criteria with their
 * verdicts, and what did not reproduce.
 */
export function reproductionMarkdown(told: ReproductionData): string {
  const { study } = told.reproduction;
  const parts = [
    `# ${study.title}: published and measured`,
    ...[study.source, study.metric, describeProgress(told)],
    `**${describeSummary(told.reproduction)}**`,
    '## Published and measured figures',
    markdownTable(MEASURED_HEAD, told.reproduction.rows.flatMap(measuredCells), 4),
    asList(measuredNotes(told.reproduction)),
    'The source concludes:',
    asList(study.conclusions),
    '## Criteria, written before the run',
    criteriaTable(told.reproduction.criteria),
    asList(told.criteria.rules),
    ...explanations(told.reproduction.criteria),
    '## Differences from the published setting',
    asList(study.differences),
    '## Processor time and what bound the loads',
    useMarkdown(told.use).trim(),
    '## The bench',
    describeBench(told.reproduction),
    ...(told.roundsLeftOut === 0
      ? []
      : [
          `${told.roundsLeftOut} blocks of a link and page are excluded because the machine was starved or the link late; table and ` +
            'report show the ratios including them.',
        ]),
  ];
  return `${parts.join('\n\n')}\n`;
}

/** Summarizes the result in one line. */
export function describeSummary({ study, criteria, leftOut }: Reproduction): string {
  const count = (verdict: Verdict): number =>
    criteria.filter((each) => each.verdict === verdict).length;
  const counts = VERDICTS.map((verdict) => `${count(verdict)} ${verdict}`).filter(
    (text) => !text.startsWith('0 '),
  );
  const rest =
    leftOut === 0 ? '' : ` ${leftOut} more are of links that this campaign does not include.`;
  return `${study.name}: of ${criteria.length} criteria ${counts.join(', ')}.${rest}`;
}

/** States how far the campaign has come, and that the criteria were written first. */
export function describeProgress({ campaign, criteria, blocks }: ReproductionData): string {
  const begun = campaign.sittings[0]?.startedAt ?? '';
  const state =
    campaign.status === 'finished'
      ? `${blocks} blocks, seed ${campaign.seed}, begun ${begun}.`
      : `This campaign is not finished: ${blocks} of ${campaign.blocks.max} blocks so far, the last one possibly incomplete; seed ${campaign.seed}, begun ${begun}.`;
  return `${state} Criteria written ${criteria.writtenAt}, sha256 ${criteria.sha256.slice(0, 16)}….`;
}

export const MEASURED_HEAD = ['place', 'here', 'protocol', '', ...FIGURES, 'n'];

/**
 * Returns the rows of a place: the published figures if there are any, then the measured ones. Each
 * row repeats the place, since phones and screen readers show one row at a time.
 */
export function measuredCells(measured: MeasuredRow): string[][] {
  const { row, figures } = measured;
  const place = [row.place, placeHere(row), row.variant];
  const published = FIGURES.map((name) => seconds(row.figures[name]));
  const own = FIGURES.map((name) => seconds(figures?.[name]));
  const hasPublished = published.some((text) => text !== '');
  return [
    ...(hasPublished ? [[...place, 'published', ...published, '']] : []),
    [...place, 'measured', ...own, describeCount(measured)],
  ];
}

function placeHere({ profile, page, metric }: PublishedRow): string {
  return `${profile}, ${page}${metric === 'load' || metric === 'lastByte' ? '' : `, ${metric}`}`;
}

function describeCount({ valid, completed, invalid }: MeasuredRow): string {
  const notes = [
    ...(completed < valid ? [`${completed} completed`] : []),
    ...(invalid > 0 ? [`${invalid} invalid excluded`] : []),
  ];
  return notes.length === 0 ? String(valid) : `${valid} (${notes.join(', ')})`;
}

/** Returns the notes needed to read the table. */
export function measuredNotes({ rows }: Reproduction): string[] {
  const metrics = [...new Set(rows.map(({ row }) => row.metric))];
  const incomplete = rows.some(({ valid, completed }) => completed < valid);
  return [
    `Seconds from the start of navigation: ${metrics.map((metric) => `${METRIC_WORDS[metric]} (\`${metric}\`)`).join('; ')}.`,
    'The published absolute times are from another page, link and year; only their shape can be reproduced.',
    'p90 and p99 follow the source: the largest of the first int(p n) values, so p99 of 50 loads is the second largest.',
    ...(incomplete
      ? [
          '"none": the load at this rank did not complete, and ranks as slower than all others; the mean is over completed loads.',
        ]
      : []),
  ];
}

function criteriaTable(criteria: readonly Evaluated[]): string {
  const head = ['criterion', 'holds if', 'published', 'measured', 'blocks', 'verdict', 'expected'];
  const body = criteria.map((each) => [
    each.criterion.statement,
    describeClaim(each.criterion.claim),
    each.criterion.published === undefined ? '' : ratio(each.criterion.published),
    describeEffect(each),
    String(each.blocks),
    each.verdict,
    each.criterion.expected.verdict,
  ]);
  return markdownTable(head, body, 2);
}

/** Formats a claim: "0.6 to 0.9", "1 or below". */
export function describeClaim(claim: Claim | undefined): string {
  if (claim === undefined) return 'only reported';
  const { low, high } = claim;
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  return high === undefined ? `${low ?? ''} or above` : `${high} or below`;
}

/**
 * Formats an effect: "0.912 [0.880, 0.951]", or "1.04 round trips [0.97, 1.12]" for a difference.
 */
export function describeEffect({ criterion, effect }: Evaluated): string {
  if (effect === undefined) return 'no block has all required loads';
  const unit = criterion.effect.kind === 'difference' ? ` ${criterion.effect.unit}` : '';
  const { value, interval } = effect;
  const range =
    interval === undefined
      ? ' (too few blocks for an interval)'
      : ` [${ratio(interval.low)}, ${ratio(interval.high)}]`;
  return `${ratio(value)}${unit}${range}`;
}

function explanations(criteria: readonly Evaluated[]): string[] {
  const failed = criteria.filter(({ verdict }) => verdict === 'not reproduced');
  const undecided = criteria.filter(({ verdict }) => verdict === 'undecided');
  return [
    '## What did not reproduce, and possible reasons',
    failed.length === 0 ? 'Nothing: no criterion failed.' : asList(failed.map(describeExplanation)),
    '## What remains undecided',
    undecided.length === 0
      ? 'Nothing: each criterion was decided.'
      : asList(undecided.map(describeExplanation)),
  ];
}

/**
 * Explains a criterion's outcome with the expectation and reasons that were written before the run.
 */
export function describeExplanation(evaluated: Evaluated): string {
  const { criterion, verdict } = evaluated;
  const { expected, otherwise, statement } = criterion;
  const measured = `measured ${describeEffect(evaluated)}, required ${describeClaim(criterion.claim)}`;
  // More blocks may decide it, so there is nothing to explain yet.
  if (verdict === 'undecided') return `${statement}: ${measured}.`;
  return `${statement}: ${measured}. ${describeReason(expected, otherwise, verdict)}.`;
}

/** Explains a failed claim by what was written before the run. */
function describeReason(
  expected: Criterion['expected'],
  otherwise: string,
  verdict: Verdict,
): string {
  if (expected.verdict === verdict) return `As expected: ${expected.because}`;
  const reason = `Possible reason, written before the run: ${otherwise}`;
  if (expected.verdict === 'open') return `No outcome was expected: ${expected.because}. ${reason}`;
  return `Contrary to the expectation ("${expected.verdict}": ${expected.because}). ${reason}`;
}

/** Summarizes what the A/A controls say about the bench. */
export function describeBench({ control, rows }: Reproduction): string {
  const invalid = rows.reduce((sum, each) => sum + each.invalid, 0);
  const { intervals, excluding, allowed, verdict } = control;
  const words = {
    none: `A/A controls are judged from ${MIN_CONTROL_BLOCKS} blocks on; there were fewer.`,
    good: `Of ${intervals} A/A intervals, ${excluding} exclude a ratio of 1; chance explains up to ${allowed}.`,
    'repair-the-bench': `Of ${intervals} A/A intervals, ${excluding} exclude a ratio of 1, but chance explains at most ${allowed}: the bench is at fault. Do not trust the verdicts above.`,
  }[verdict];
  return `${words} ${invalid === 0 ? 'No load of these tables is invalid.' : `${invalid} loads of these tables are invalid and excluded; table.md has the reasons.`}`;
}

function ratio(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? 'none' : '-none';
  return value.toFixed(3);
}

function seconds(value: number | undefined): string {
  if (value === undefined) return '';
  return Number.isFinite(value) ? value.toFixed(4) : 'none';
}

function asList(lines: readonly string[]): string {
  return lines.map((line) => `- ${line}`).join('\n');
}
