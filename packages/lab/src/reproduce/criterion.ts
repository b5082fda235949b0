import { z } from 'zod';

/**
 * Criteria: statements about the shape of a result, written before the first load so that looking
 * at the samples cannot influence them. They are data, not code: `criteria.json` contains them, and
 * verdicts are made from that file.
 */

/** Times of a load that criteria can use. */
export const METRICS = ['load', 'lastByte', 'firstByte', 'requestStart'] as const;
export type Metric = (typeof METRICS)[number];

export const METRIC_WORDS: Readonly<Record<Metric, string>> = {
  load: 'end of the load event',
  lastByte: 'last byte of everything that the page links',
  firstByte: 'first byte of the document',
  requestStart: 'start of the document’s request',
};

const term = z.object({
  profile: z.string(),
  page: z.string(),
  arm: z.string(),
  metric: z.enum(METRICS),
  figure: z.enum(['median', 'mean', 'p90']),
});

/** One figure of one cell. */
export type Term = z.infer<typeof term>;

const effect = z.discriminatedUnion('kind', [
  /** The product of some figures divided by that of others: a ratio, or a ratio of ratios. */
  z.object({ kind: z.literal('ratio'), over: z.array(term).min(1), under: z.array(term).min(1) }),
  /**
   * How much larger the first figure is than the second, in units of so many seconds, such as round
   * trips.
   */
  z.object({
    kind: z.literal('difference'),
    of: term,
    less: term,
    unit: z.string(),
    unitSeconds: z.number().positive(),
  }),
]);
export type Effect = z.infer<typeof effect>;

const claim = z.object({ low: z.number().optional(), high: z.number().optional() });
/** The range of an effect; a missing end is unbounded. */
export type Claim = z.infer<typeof claim>;

const criterion = z.object({
  id: z.string(),
  /** The criterion in words. */
  statement: z.string(),
  effect,
  /** Without a claim the effect is only reported. */
  claim: claim.optional(),
  /** The effect computed from the published figures; absent if they do not contain it. */
  published: z.number().optional(),
  /** Outcome expected before the run, and why. */
  expected: z.object({
    verdict: z.enum(['reproduced', 'not reproduced', 'open']),
    because: z.string(),
  }),
  /** Why the result may differ from the published one. */
  otherwise: z.string(),
});
export type Criterion = z.infer<typeof criterion>;

const publishedRow = z.object({
  /** The place as the source names it. */
  place: z.string(),
  /** The arm as the source names it. */
  variant: z.string(),
  /** The cell that represents it here. */
  profile: z.string(),
  page: z.string(),
  arm: z.string(),
  metric: z.enum(METRICS),
  /** In seconds; unpublished figures are absent. */
  figures: z.object({
    median: z.number().optional(),
    mean: z.number().optional(),
    p90: z.number().optional(),
    p99: z.number().optional(),
    min: z.number().optional(),
    max: z.number().optional(),
  }),
});
export type PublishedRow = z.infer<typeof publishedRow>;

const study = z.object({
  name: z.string(),
  title: z.string(),
  /** Who published it, when, and how it was measured. */
  source: z.string(),
  /** The metric measured here for the source's figure. */
  metric: z.string(),
  published: z.array(publishedRow),
  /** Published results that are not times. */
  conclusions: z.array(z.string()),
  criteria: z.array(criterion).min(1),
  /** Differences between the lab's setting and the source's. */
  differences: z.array(z.string()),
});

/** A published result, its representation here, and when it counts as reproduced. */
export type Study = z.infer<typeof study>;
export const studySchema = study;

export const VERDICTS = ['reproduced', 'not reproduced', 'undecided', 'reported'] as const;
export type Verdict = (typeof VERDICTS)[number];

/** How an interval becomes a verdict. Also part of the criteria file. */
export const VERDICT_RULES = [
  'Each effect has a 95 % bootstrap interval over the blocks in which each load that it needs is valid.',
  'reproduced: the whole interval lies in the claimed range. not reproduced: the whole interval lies outside.',
  'undecided: the interval crosses an end of the range, or there are too few blocks for an interval.',
  'reported: there is no claim; the effect is only shown.',
  'A load that did not complete counts as slower than all that did. The intervals are not adjusted for their number: one in twenty may miss by chance.',
] as const;
