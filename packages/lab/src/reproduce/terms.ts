import type { Criterion, Effect, Metric, PublishedRow, Term } from './criterion.js';

/** Short ways to write a study's criteria down. */

/** A cell with a metric: what terms of one study mostly share. */
export interface Cell {
  readonly profile: string;
  readonly page: string;
  readonly arm: string;
  readonly metric: Metric;
}

export type FigureName = Term['figure'];

/** One cell's figure by another's. */
export function ratioOf(figure: FigureName, over: Cell, under: Cell): Effect {
  return { kind: 'ratio', over: [{ ...over, figure }], under: [{ ...under, figure }] };
}

/** How a ratio lies to another one: `ratioOfRatios(p90, median)` is below 1 where the tail gains more than the middle. */
export function ratioOfRatios(first: Effect, second: Effect): Effect {
  if (first.kind !== 'ratio' || second.kind !== 'ratio') throw new Error('only ratios have a ratio');
  return { kind: 'ratio', over: [...first.over, ...second.under], under: [...first.under, ...second.over] };
}

/** The published figures' own ratio for an effect, where they have each figure of it. */
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

function figureOf({ profile, page, arm, metric, figure }: Term, rows: readonly PublishedRow[]): number | undefined {
  const row = rows.find(
    (each) => each.profile === profile && each.page === page && each.arm === arm && each.metric === metric,
  );
  return row?.figures[figure];
}

/** A criterion whose published value follows from the published table. */
export function withPublished(criterion: Criterion, rows: readonly PublishedRow[]): Criterion {
  const published = criterion.published ?? publishedEffect(criterion.effect, rows);
  return { ...criterion, ...(published !== undefined && { published: Math.round(published * 1000) / 1000 }) };
}
