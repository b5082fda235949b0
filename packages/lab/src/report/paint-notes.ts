/** Notes on paints: until when they count, and which came too late. */

import { SHORT_LOOK_MS } from '../samples/look.js';
import { severalPages, type Cell, type Results } from './results.js';

/**
 * Notes until when the paints of each page count if not the usual time, and how many loads had
 * later ones.
 */
export function paintNotes({ cells }: Pick<Results, 'cells'>): string[] {
  const several = severalPages(cells);
  return [...new Set(cells.map(({ page }) => page))].flatMap((page) => {
    const own = cells.filter((cell) => cell.page === page);
    const late = own.reduce((sum, { latePaints }) => sum + latePaints, 0);
    const lookMs = lookOfAll(own);
    const long =
      `${several ? `Paints of page ${page}` : 'Paints'} count until ${lookMs} ms after the start of the load event, in all arms: ` +
      'in a rehearsal a larger paint came late.';
    const tooLate =
      `In ${late} ${late === 1 ? 'load' : 'loads'}${several ? ` of page ${page}` : ''} a larger paint came more than ${lookMs} ms after ` +
      'the start of the load event, which the figures do not count.';
    return [...(lookMs > SHORT_LOOK_MS ? [long] : []), ...(late > 0 ? [tooLate] : [])];
  });
}

/**
 * Notes, for each compared profile and page, in how many loads of each arm a larger paint came too
 * late to count.
 */
export function latePaintNotes({
  cells,
  comparisons,
}: Pick<Results, 'cells' | 'comparisons'>): string[] {
  const compared = comparisons.comparisons.filter(({ metric }) => metric === 'lcp');
  const several = severalPages(cells);
  const places = new Map<string, Cell[]>();
  for (const cell of cells) {
    const here = compared.some(
      ({ profile, page, arm, base }) =>
        profile === cell.profile &&
        (page ?? cell.page) === cell.page &&
        [arm, base].includes(cell.arm),
    );
    if (!here) continue;
    const place = several ? `${cell.profile}/${cell.page}` : cell.profile;
    places.set(place, [...(places.get(place) ?? []), cell]);
  }
  return [...places].flatMap(([place, own]) => {
    if (own.every(({ latePaints }) => latePaints === 0)) return [];
    const counts = own.map(
      ({ arm, latePaints, summary }) => `${latePaints} of ${summary.n} loads of ${arm}`,
    );
    return [
      `Largest paint on ${place}: in ${counts.join(', ')} a larger paint came more than ${lookOfAll(own)} ms after the start of the ` +
        'load event, too late to count. An earlier, smaller paint counts instead, which may make the slower arm look faster, so there is no verdict.',
    ];
  });
}

function lookOfAll(cells: readonly Cell[]): number {
  return Math.max(SHORT_LOOK_MS, ...cells.map(({ lookMs }) => lookMs));
}
