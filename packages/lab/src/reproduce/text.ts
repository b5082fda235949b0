import { useMarkdown, type CellUse } from '../bound.js';
import type { Campaign } from '../campaign-file.js';
import { LEAST_CONTROL_BLOCKS } from '../compare/campaign.js';
import { markdownTable } from '../markdown-table.js';
import type { CriteriaFile } from './criteria-file.js';
import { METRIC_WORDS, VERDICTS, type Claim, type Criterion, type PublishedRow, type Verdict } from './criterion.js';
import type { Evaluated, MeasuredRow, Reproduction } from './evaluate.js';

const FIGURES = ['median', 'mean', 'p90', 'p99', 'min', 'max'] as const;

/** What a document about a reproduction is made of. */
export interface Told {
  readonly campaign: Campaign;
  readonly criteria: CriteriaFile;
  readonly reproduction: Reproduction;
  /** The last block of which there is a load. */
  readonly blocks: number;
  /** Blocks of a profile and page that count for nothing since the machine was starved or the link late in them. */
  readonly roundsLeftOut: number;
  /** What the loads of each cell used. */
  readonly use: readonly CellUse[];
}

/** `reproduction.md`: published beside measured, the criteria with their verdicts, and what did not reproduce. */
export function reproductionMarkdown(told: Told): string {
  const { study } = told.reproduction;
  const parts = [
    `# ${study.title}: published and measured`,
    ...[study.source, study.metric, standingInWords(told)],
    `**${summaryInWords(told.reproduction)}**`,
    '## Published beside measured',
    markdownTable(MEASURED_HEAD, told.reproduction.rows.flatMap(measuredCells), 4),
    asList(measuredNotes(told.reproduction)),
    'The source concludes:',
    asList(study.conclusions),
    '## Criteria, written before the run',
    criteriaTable(told.reproduction.criteria),
    asList(told.criteria.rules),
    ...explanations(told.reproduction.criteria),
    '## In what this setting is another one',
    asList(study.differences),
    '## Processor time, and what bound the loads',
    useMarkdown(told.use).trim(),
    '## The bench',
    benchInWords(told.reproduction),
    ...(told.roundsLeftOut === 0
      ? []
      : [
          `${told.roundsLeftOut} blocks of a link and page were left out, since the machine was starved or the link late in them; table and ` +
            'report show the ratios with them.',
        ]),
  ];
  return `${parts.join('\n\n')}\n`;
}

/** What a reader who stops after one line should know. */
export function summaryInWords({ study, criteria, leftOut }: Reproduction): string {
  const count = (verdict: Verdict): number => criteria.filter((each) => each.verdict === verdict).length;
  const counts = VERDICTS.map((verdict) => `${count(verdict)} ${verdict}`).filter((text) => !text.startsWith('0 '));
  const rest = leftOut === 0 ? '' : ` ${leftOut} more are of links that this campaign leaves out.`;
  return `${study.name}: of ${criteria.length} criteria ${counts.join(', ')}.${rest}`;
}

/** How far the campaign came, and that the criteria were there first. */
export function standingInWords({ campaign, criteria, blocks }: Told): string {
  const begun = campaign.sittings[0]?.startedAt ?? '';
  const state =
    campaign.status === 'finished'
      ? `${blocks} blocks, seed ${campaign.seed}, begun ${begun}.`
      : `This campaign has not run to its end: ${blocks} of ${campaign.blocks.max} blocks so far, the last one perhaps in part; seed ${campaign.seed}, begun ${begun}.`;
  return `${state} Criteria written ${criteria.writtenAt}, sha256 ${criteria.sha256.slice(0, 16)}….`;
}

export const MEASURED_HEAD = ['place', 'here', 'protocol', '', ...FIGURES, 'n'];

/**
 * The rows of a place one below the other: published, where there is something, then measured. Each says which place it is:
 * a telephone, and who listens to the table, has one row at a time.
 */
export function measuredCells(measured: MeasuredRow): string[][] {
  const { row, figures } = measured;
  const place = [row.place, placeHere(row), row.variant];
  const published = FIGURES.map((name) => seconds(row.figures[name]));
  const own = FIGURES.map((name) => seconds(figures?.[name]));
  const hasPublished = published.some((text) => text !== '');
  return [
    ...(hasPublished ? [[...place, 'published', ...published, '']] : []),
    [...place, 'measured', ...own, countInWords(measured)],
  ];
}

function placeHere({ profile, page, metric }: PublishedRow): string {
  return `${profile}, ${page}${metric === 'load' || metric === 'lastByte' ? '' : `, ${metric}`}`;
}

function countInWords({ valid, completed, invalid }: MeasuredRow): string {
  const notes = [
    ...(completed < valid ? [`${completed} completed`] : []),
    ...(invalid > 0 ? [`${invalid} invalid left out`] : []),
  ];
  return notes.length === 0 ? String(valid) : `${valid} (${notes.join(', ')})`;
}

/** What has to be known to read the table. */
export function measuredNotes({ rows }: Reproduction): string[] {
  const metrics = [...new Set(rows.map(({ row }) => row.metric))];
  const incomplete = rows.some(({ valid, completed }) => completed < valid);
  return [
    `Seconds from the start of navigation: ${metrics.map((metric) => `${METRIC_WORDS[metric]} (\`${metric}\`)`).join('; ')}.`,
    'Absolute times are those of another page, link and year: what can be reproduced is their shape.',
    'p90 and p99 as the source has them: the largest of the first int(p n) values, so that of 50 loads p99 is the second largest.',
    ...(incomplete
      ? [
          '"none": the load at this rank did not complete, and ranks as slower than all others; the mean is of those that did.',
        ]
      : []),
  ];
}

function criteriaTable(criteria: readonly Evaluated[]): string {
  const head = ['criterion', 'holds if', 'published', 'measured', 'blocks', 'verdict', 'expected'];
  const body = criteria.map((each) => [
    each.criterion.statement,
    claimInWords(each.criterion.claim),
    each.criterion.published === undefined ? '' : ratio(each.criterion.published),
    effectInWords(each),
    String(each.blocks),
    each.verdict,
    each.criterion.expected.verdict,
  ]);
  return markdownTable(head, body, 2);
}

/** "0.6 to 0.9", "below 1". */
export function claimInWords(claim: Claim | undefined): string {
  if (claim === undefined) return 'only reported';
  const { low, high } = claim;
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  return high === undefined ? `${low ?? ''} or above` : `${high} or below`;
}

/** "0.912 [0.880, 0.951]", or "1.04 round trips [0.97, 1.12]" for a difference. */
export function effectInWords({ criterion, effect }: Evaluated): string {
  if (effect === undefined) return 'no block with all of its loads';
  const unit = criterion.effect.kind === 'difference' ? ` ${criterion.effect.unit}` : '';
  const { value, interval } = effect;
  const range =
    interval === undefined ? ' (too few blocks for an interval)' : ` [${ratio(interval.low)}, ${ratio(interval.high)}]`;
  return `${ratio(value)}${unit}${range}`;
}

function explanations(criteria: readonly Evaluated[]): string[] {
  const failed = criteria.filter(({ verdict }) => verdict === 'not reproduced');
  const undecided = criteria.filter(({ verdict }) => verdict === 'undecided');
  return [
    '## What did not reproduce, and why it may not',
    failed.length === 0 ? 'Nothing: no criterion failed.' : asList(failed.map(explanationInWords)),
    '## What stays undecided',
    undecided.length === 0 ? 'Nothing: each claim was decided.' : asList(undecided.map(explanationInWords)),
  ];
}

/** Why a criterion may have come out as it did: what was written before the run, with what was expected. */
export function explanationInWords(evaluated: Evaluated): string {
  const { criterion, verdict } = evaluated;
  const { expected, otherwise, statement } = criterion;
  const measured = `measured ${effectInWords(evaluated)}, it would hold at ${claimInWords(criterion.claim)}`;
  // More blocks may decide it: there is nothing to explain yet.
  if (verdict === 'undecided') return `${statement}: ${measured}.`;
  return `${statement}: ${measured}. ${reasonInWords(expected, otherwise, verdict)}.`;
}

/** What was thought beforehand of a claim that failed. */
function reasonInWords(expected: Criterion['expected'], otherwise: string, verdict: Verdict): string {
  if (expected.verdict === verdict) return `As expected: ${expected.because}`;
  const reason = `A reason that was seen beforehand: ${otherwise}`;
  if (expected.verdict === 'open') return `Nothing was expected either way: ${expected.because}. ${reason}`;
  return `Against what was expected ("${expected.verdict}": ${expected.because}). ${reason}`;
}

/** What the arms that were loaded twice say of the bench. */
export function benchInWords({ control, rows }: Reproduction): string {
  const invalid = rows.reduce((sum, each) => sum + each.invalid, 0);
  const { intervals, excluding, allowed, verdict } = control;
  const words = {
    none: `The same arm twice is judged from ${LEAST_CONTROL_BLOCKS} blocks on: there were not so many.`,
    good: `Of ${intervals} intervals of the same arm against itself ${excluding} exclude no effect; chance explains up to ${allowed}.`,
    'repair-the-bench': `Of ${intervals} intervals of the same arm against itself ${excluding} exclude no effect, where chance explains ${allowed} at most: the bench is at fault, believe no verdict above.`,
  }[verdict];
  return `${words} ${invalid === 0 ? 'No load of these tables is invalid.' : `${invalid} loads of these tables are invalid and left out; table.md has the reasons.`}`;
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
