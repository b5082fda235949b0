import type { Criterion, Effect, Metric, PublishedRow, Term } from './criterion.js';

/** Helpers for writing a study's criteria. */

/** A cell with a metric, which most terms of a study share. */
export interface Cell {
  readonly profile: string;
  readonly page: string;
  readonly arm: string;
  readonly metric: Metric;
}

export type FigureName = Term['figure'];

/** Returns one cell's figure divided by another's. */
export function ratioOf(figure: FigureName, over: Cell, under: Cell): Effect {
  return { kind: 'ratio', over: [{ ...over, figure }], under: [{ ...under, figure }] };
}

/**
 * Returns one ratio divided by another: `ratioOfRatios(p90, median)` is below 1 if the tail gains
 * more than the median.
 */
export function ratioOfRatios(first: Effect, second: Effect): Effect {
  if (first.kind !== 'ratio' || second.kind !== 'ratio')
    throw new Error('only ratios have a ratio');
  return {
    kind: 'ratio',
    over: [...first.over, ...second.under],
    under: [...first.under, ...second.over],
  };
}

/** Returns an effect's ratio from the published figures, if they contain each figure of it. */
export function publishedEffect(effect: Effect, rows: readonly PublishedRow[]): number | undefined {
  if (effect.kind !== 'ratio') return undefined;
  const product = (terms: readonly Term[]): number | undefined =>
    terms.reduce<number | undefined>((so, each) => {
      const value = figureOf(each, rows);
      return so === undefined || value === undefined ? undefined : so * value;
    }, 1);
  const [over, under] = [product(effect.over), product(effect.under)];
  return over === undefined || under === undefined ? undefined : over / under;
}

function figureOf(
  { profile, page, arm, metric, figure }: Term,
  rows: readonly PublishedRow[],
): number | undefined {
  const row = rows.find(
    (each) =>
      each.profile === profile && each.page === page && each.arm === arm && each.metric === metric,
  );
  return row?.figures[figure];
}

/** Adds the published value, if it follows from the published table. */
export function withPublished(criterion: Criterion, rows: readonly PublishedRow[]): Criterion {
  const published = criterion.published ?? publishedEffect(criterion.effect, rows);
  return {
    ...criterion,
    ...(published !== undefined && { published: Math.round(published * 1000) / 1000 }),
  };
}
