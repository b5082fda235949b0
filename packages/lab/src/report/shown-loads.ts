import type { Cell, LoadResult, Results } from './results.js';
import type { WaterfallLoad } from './waterfall.js';
import type { PictureStore, Pictures } from './pictures.js';
import { profilePages, type ProfilePage } from './sections.js';

/** The load that represents its arm where single loads are drawn. */
export interface ShownLoad {
  readonly load: number;
  readonly arm: string;
  /** False if the load is not the arm's median load, but a watched one. */
  readonly median: boolean;
  readonly block: number;
  /** Seconds; undefined if it did not complete. */
  readonly time: number | undefined;
  readonly pictures: Pictures | undefined;
}

/** A profile and page with one load of each arm. */
export interface ShownPlace {
  readonly place: ProfilePage;
  readonly loads: readonly ShownLoad[];
}

/**
 * Chooses a load of each arm: of the loads with screenshots the one nearest to the arm's median, if
 * every arm has some, otherwise the median load. All arms of a profile and page follow the same
 * rule, since watching a load slows it.
 */
export function shownPlaces(results: Results, store: PictureStore): ShownPlace[] {
  const pictured = store.loads();
  return profilePages(results).map((place) => {
    const watched = place.cells.map((cell) => nearestToMedian(cell, pictured));
    const numbers = watched.flatMap((each) => (each === undefined ? [] : [each.load]));
    const pictures = numbers.length < watched.length ? undefined : store.ofAll(numbers);
    const loads = place.cells.flatMap((cell, at) => {
      const chosen = pictures
        ? watched[at]
        : loadsOf(cell).find(({ load }) => load === cell.medianLoad);
      if (chosen === undefined) return [];
      const { load, block, time } = chosen;
      const median = load === cell.medianLoad;
      return [{ load, arm: cell.arm, median, block, time, pictures: pictures?.[at] }];
    });
    return { place, loads };
  });
}

function loadsOf(cell: Cell): LoadResult[] {
  return [...cell.loads, ...cell.rehearsals];
}

/**
 * Prefers a valid load of a block; the rehearsal is the fallback if no load of a block was watched.
 */
function nearestToMedian(cell: Cell, among: ReadonlySet<number>): LoadResult | undefined {
  const { median } = cell.summary;
  const aim = median === undefined || median === 'censored' ? Infinity : median.seconds;
  const distance = ({ time }: LoadResult): number => {
    if (time === undefined) return aim === Infinity ? 0 : Infinity;
    return aim === Infinity ? Number.MAX_VALUE : Math.abs(time - aim);
  };
  const nearest = (loads: readonly LoadResult[]): LoadResult | undefined =>
    loads
      .filter(({ valid, load }) => valid && among.has(load))
      .sort((a, b) => Math.sign(distance(a) - distance(b)) || a.load - b.load)[0];
  return nearest(cell.loads) ?? nearest(cell.rehearsals);
}

/** Describes how the shown load was chosen. */
export function describeChoice({ load, median, block }: ShownLoad): string {
  if (median) return `load ${load}, the median`;
  return block === 0
    ? `load ${load}, the rehearsal`
    : `load ${load}, watched and nearest to the median`;
}

/** Returns the numbers of all shown loads. */
export function numbersOf(places: readonly ShownPlace[]): number[] {
  return places.flatMap(({ loads }) => loads.map(({ load }) => load));
}

/** Requests of the shown loads, by load number. */
export type Waterfalls = ReadonlyMap<number, WaterfallLoad>;
