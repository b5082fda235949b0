import { z } from 'zod';
import { MAX_SEED } from '../seed.js';
import { field, missingOr, readTomlFile, type TomlFile } from '../toml-file.js';
import { MIN_BYTES } from './sizes.js';

export const RESOURCE_KINDS = ['stylesheet', 'script', 'font', 'image'] as const;
export type ResourceKind = (typeof RESOURCE_KINDS)[number];

/** Whatever a resource is named in: nothing else asks for it. */
export const DISCOVERERS = ['document', 'stylesheet', 'script'] as const;
export type Discoverer = (typeof DISCOVERERS)[number];

/** The smallest mean size of a group whose sizes differ by a factor of two: its smallest member must hold a real image, font, script or style sheet. */
export const MIN_MEAN_BYTES = 2048;

/** The same for the image that is shown large, whose pixels take room. */
const MIN_LARGEST_BYTES = 4096;

/** A log-normal distribution of fewer sizes than this has no shape. */
const MIN_DISTRIBUTED = 3;
const MAX_DEPTH = 8;

const CAN_DISCOVER: Readonly<Record<ResourceKind, readonly Discoverer[]>> = {
  stylesheet: ['document', 'stylesheet'],
  script: ['document', 'script'],
  // A browser asks for a font when a style sheet says that a character needs it, and not before.
  font: ['stylesheet'],
  image: ['document', 'stylesheet', 'script'],
};

const group = z
  .strictObject({
    kind: field.choice(RESOURCE_KINDS),
    count: field.integer(1, 1000, 'resources'),
    /** Bytes of the whole group. Its members differ in size, and add up to exactly this. */
    total_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    median_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    p90_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    discovered_by: field.choice(DISCOVERERS).optional(),
    /** How many scripts below those of the document the last of the group is found. */
    depth: field.integer(1, MAX_DEPTH, 'scripts').optional(),
    /** A host below the page's own; without it the resource is on the page's. */
    origin: field
      .text('a name for a host below the page’s')
      .regex(/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/, { error: 'must be 1 to 32 small letters, digits or dashes' })
      .optional(),
    /** Whether it is the largest thing in sight: what largest contentful paint waits for. */
    largest: z.boolean({ error: 'must be true or false' }).optional(),
  })
  .superRefine((value, context) => {
    const problem = sizeProblem(value) ?? discoveryProblem(value);
    if (problem === undefined) return;
    const [key, message] = problem;
    context.addIssue({ code: 'custom', path: [key], message });
  });

interface GroupTable {
  readonly kind: ResourceKind;
  readonly count: number;
  readonly total_bytes?: number | undefined;
  readonly median_bytes?: number | undefined;
  readonly p90_bytes?: number | undefined;
  readonly discovered_by?: Discoverer | undefined;
  readonly depth?: number | undefined;
  readonly largest?: boolean | undefined;
}

type Problem = readonly [key: string, message: string];

function sizeProblem({
  count,
  total_bytes: total,
  median_bytes: median,
  p90_bytes: p90,
}: GroupTable): Problem | undefined {
  if (median === undefined) {
    if (p90 !== undefined) return ['p90_bytes', 'needs `median_bytes` beside it'];
    if (total === undefined) return ['total_bytes', 'is missing; or give `median_bytes` and `p90_bytes`'];
    if (total < count * MIN_MEAN_BYTES) {
      return ['total_bytes', `must be at least ${MIN_MEAN_BYTES} for each resource of the group`];
    }
    return undefined;
  }
  if ((total === undefined) === (p90 === undefined)) {
    return ['median_bytes', 'needs either `total_bytes` or `p90_bytes` beside it'];
  }
  if (p90 !== undefined) return p90 < median ? ['p90_bytes', 'must not be less than `median_bytes`'] : undefined;
  if (count < MIN_DISTRIBUTED) return ['median_bytes', `needs a group of ${MIN_DISTRIBUTED} resources or more`];
  if ((total ?? 0) < count * median) {
    return ['median_bytes', 'must not be more than the mean, which is `total_bytes` divided by `count`'];
  }
  return undefined;
}

function discoveryProblem(value: GroupTable): Problem | undefined {
  const { kind, count, total_bytes: total, discovered_by: given, depth, largest } = value;
  const by = discoverer(value);
  const allowed = CAN_DISCOVER[kind];
  if (!allowed.includes(by)) {
    const listed = allowed.map((name) => `"${name}"`).join(' or ');
    return ['discovered_by', `of a ${kind} must be ${listed}, not "${given ?? by}"`];
  }
  if (depth !== undefined && by !== 'script') return ['depth', 'belongs to `discovered_by = "script"` only'];
  if (kind === 'script' && (depth ?? 1) > count) return ['depth', 'must not be more than `count`'];
  if (largest === true && (kind !== 'image' || count !== 1)) return ['largest', 'belongs to a group of one image only'];
  if (largest === true && (total ?? 0) < MIN_LARGEST_BYTES) {
    return ['total_bytes', `must be given, and at least ${MIN_LARGEST_BYTES}, for the largest image`];
  }
  return undefined;
}

const pageSpec = z
  .strictObject({
    name: field.text('the name of the page'),
    seed: field.integer(0, MAX_SEED),
    html_bytes: field.integer(1024, 100_000_000, 'bytes'),
    resources: z.array(group, { error: missingOr('must be a list of tables, each headed [[resources]]') }).default([]),
  })
  .superRefine(({ resources }, context) => {
    const complain = (at: number, key: string, message: string): void => {
      context.addIssue({ code: 'custom', path: ['resources', at, key], message });
    };
    resources.forEach((each, at) => {
      if (discoverer(each) === 'stylesheet' && !resources.some(isTop('stylesheet'))) {
        complain(at, 'discovered_by', 'needs a group of style sheets that the document asks for');
      }
      if (discoverer(each) === 'script' && !resources.some(isTop('script'))) {
        complain(at, 'discovered_by', 'needs a group of scripts that the document asks for');
      }
      if (each.kind === 'image' && (each.depth ?? 1) > 1 + deepestScript(resources)) {
        complain(at, 'depth', `must be ${1 + deepestScript(resources)} or less: no scripts lie deeper`);
      }
    });
    const largest = resources.flatMap((each, at) => (each.largest === true ? [at] : []));
    if (largest.length > 1) complain(largest[1] as number, 'largest', 'is true for another image already');
  });

/** What a page is made of: one HTML document and groups of resources, all of them requested once. */
export type PageSpec = z.infer<typeof pageSpec>;
export type ResourceGroup = PageSpec['resources'][number];

/** What names the members of a group. */
export function discoverer({ kind, discovered_by: by }: Pick<GroupTable, 'kind' | 'discovered_by'>): Discoverer {
  return by ?? (kind === 'font' ? 'stylesheet' : 'document');
}

function isTop(kind: ResourceKind): (group: GroupTable) => boolean {
  return (group) => group.kind === kind && discoverer(group) === 'document';
}

function deepestScript(groups: readonly GroupTable[]): number {
  const scripts = groups.filter((each) => each.kind === 'script' && discoverer(each) === 'script');
  return Math.max(0, ...scripts.map(({ depth }) => depth ?? 1));
}

/** Reads a page specification. */
export function readPageSpec(path: string): TomlFile<PageSpec> {
  return readTomlFile(path, 'page specification', pageSpec);
}

/** The number of requests that a load of the page makes. */
export function requestCount(spec: PageSpec): number {
  return spec.resources.reduce((sum, { count }) => sum + count, 1);
}
