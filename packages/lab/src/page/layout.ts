import { deriveSeed, generator } from '../campaign/seed.js';
import { sizesOf } from './sizes.js';
import {
  discoverer,
  type Discoverer,
  type PageSpec,
  type ResourceGroup,
  type ResourceKind,
} from './spec.js';

/** A planned resource without its body: its path, its size, and what names it. */
export interface Planned {
  readonly kind: ResourceKind;
  /** Path relative to the root of its own host. */
  readonly path: string;
  /** Name of the host below the page's; undefined for the page's own. */
  readonly origin: string | undefined;
  readonly size: number;
  /** Index among the resources of its kind. */
  readonly index: number;
  readonly discoveredBy: Discoverer;
  /**
   * Number of scripts between the document's scripts and this resource, plus one; 0 if no script
   * names it.
   */
  readonly depth: number;
  /** Index of its group. */
  readonly group: number;
  readonly largest: boolean;
}

/** Plans all resources of a page, in the order of its specification. */
export function layOut(spec: PageSpec): Planned[] {
  const seen = new Map<ResourceKind, number>();
  return spec.resources.flatMap((group, position) => {
    const random = generator(deriveSeed(spec.seed, spec.name, 'sizes', position));
    return sizesOf(group, random).map((size, at): Planned => {
      const index = seen.get(group.kind) ?? 0;
      seen.set(group.kind, index + 1);
      return {
        kind: group.kind,
        path: pathOf(group.kind, index),
        origin: group.origin,
        size,
        index,
        discoveredBy: discoverer(group),
        depth: depthOf(group, at),
        group: position,
        largest: group.largest === true,
      };
    });
  });
}

/**
 * Returns a member's level: scripts of a group are spread evenly over its levels, and images that a
 * script names are all on the same level.
 */
function depthOf(group: ResourceGroup, at: number): number {
  if (discoverer(group) !== 'script') return 0;
  const depth = group.depth ?? 1;
  return group.kind === 'script' ? 1 + Math.floor((at * depth) / group.count) : depth;
}

function pathOf(kind: ResourceKind, index: number): string {
  switch (kind) {
    case 'stylesheet':
      return `css/style-${index}.css`;
    case 'script':
      return `js/script-${index}.js`;
    case 'font':
      return `fonts/font-${index}.ttf`;
    case 'image':
      return `images/image-${index}.png`;
  }
}

/**
 * Returns the resources that `parent`, a style sheet or a script, names. Each resource that the
 * document does not name has exactly one parent.
 */
export function childrenOf(parent: Planned, all: readonly Planned[]): Planned[] {
  return all.filter((child) => child !== parent && parentOf(child, all) === parent);
}

function parentOf(child: Planned, all: readonly Planned[]): Planned | undefined {
  switch (child.discoveredBy) {
    case 'document':
      return undefined;
    case 'stylesheet':
      return shareOut(child, candidateSheets(child, all));
    case 'script':
      return shareOut(child, scriptsAbove(child, all));
  }
}

/**
 * Returns the possible parents: a style sheet is imported by one of the document's sheets,
 * everything else can be named in any sheet.
 */
function candidateSheets(child: Planned, all: readonly Planned[]): Planned[] {
  const sheets = all.filter(({ kind }) => kind === 'stylesheet');
  return child.kind === 'stylesheet'
    ? sheets.filter(({ discoveredBy }) => discoveredBy === 'document')
    : sheets;
}

/**
 * Returns the possible parents: a script chain stays in its group, and its first level is named by
 * the document's scripts.
 */
function scriptsAbove(child: Planned, all: readonly Planned[]): Planned[] {
  const above = all.filter(({ kind, depth }) => kind === 'script' && depth === child.depth - 1);
  const own = above.filter(({ group }) => group === child.group);
  return own.length > 0 ? own : above;
}

function shareOut(child: Planned, parents: readonly Planned[]): Planned | undefined {
  return parents[child.index % parents.length];
}
