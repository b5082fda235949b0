import { z } from 'zod';
import { MAX_SEED } from '../campaign/seed.js';
import { field, missingOr, readTomlFile, type TomlFile } from '../io/toml-file.js';
import { MIN_BYTES } from './sizes.js';

export const RESOURCE_KINDS = ['stylesheet', 'script', 'font', 'image'] as const;
export type ResourceKind = (typeof RESOURCE_KINDS)[number];

/** The kinds of resource that can name another one; nothing else requests it. */
export const DISCOVERERS = ['document', 'stylesheet', 'script'] as const;
export type Discoverer = (typeof DISCOVERERS)[number];

/**
 * Minimum mean size of a group whose sizes differ by a factor of two: its smallest member must
 * contain a real image, font, script or style sheet.
 */
export const MIN_MEAN_BYTES = 2048;

/** The same for the large image, whose pixels take space. */
const MIN_LARGEST_BYTES = 4096;

/** Minimum number of sizes for which a log-normal distribution makes sense. */
const MIN_DISTRIBUTED = 3;
const MAX_DEPTH = 8;

const CAN_DISCOVER: Readonly<Record<ResourceKind, readonly Discoverer[]>> = {
  stylesheet: ['document', 'stylesheet'],
  script: ['document', 'script'],
  // A browser requests a font only when a style sheet needs it for a character.
  font: ['stylesheet'],
  image: ['document', 'stylesheet', 'script'],
};

const group = z
  .strictObject({
    kind: field.choice(RESOURCE_KINDS),
    count: field.integer(1, 1000, 'resources'),
    /** Bytes of the whole group. Its members differ in size and add up to exactly this. */
    total_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    median_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    p90_bytes: field.integer(MIN_BYTES, 1_000_000_000, 'bytes').optional(),
    discovered_by: field.choice(DISCOVERERS).optional(),
    /** Number of script levels below the document's scripts at which the last member is found. */
    depth: field.integer(1, MAX_DEPTH, 'scripts').optional(),
    /** A host below the page's own; without it the resource is on the page's host. */
    origin: field
      .text('a name for a host below the page’s')
      .regex(/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/, {
        error: 'must be 1 to 32 lower-case letters, digits or dashes',
      })
      .optional(),
    /** Whether this is the largest visible element, for which largest contentful paint waits. */
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
    if (p90 !== undefined) return ['p90_bytes', 'requires `median_bytes`'];
    if (total === undefined)
      return ['total_bytes', 'is missing; alternatively, set `median_bytes` and `p90_bytes`'];
    if (total < count * MIN_MEAN_BYTES) {
      return ['total_bytes', `must be at least ${MIN_MEAN_BYTES} for each resource of the group`];
    }
    return undefined;
  }
  if ((total === undefined) === (p90 === undefined)) {
    return ['median_bytes', 'requires either `total_bytes` or `p90_bytes`'];
  }
  if (p90 !== undefined)
    return p90 < median ? ['p90_bytes', 'must not be less than `median_bytes`'] : undefined;
  if (count < MIN_DISTRIBUTED)
    return ['median_bytes', `requires a group of at least ${MIN_DISTRIBUTED} resources`];
  if ((total ?? 0) < count * median) {
    return [
      'median_bytes',
      'must not be more than the mean, which is `total_bytes` divided by `count`',
    ];
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
  if (depth !== undefined && by !== 'script')
    return ['depth', 'requires `discovered_by = "script"`'];
  if (kind === 'script' && (depth ?? 1) > count) return ['depth', 'must not be more than `count`'];
  if (largest === true && (kind !== 'image' || count !== 1))
    return ['largest', 'requires a group of exactly one image'];
  if (largest === true && (total ?? 0) < MIN_LARGEST_BYTES) {
    return [
      'total_bytes',
      `is required for the largest image and must be at least ${MIN_LARGEST_BYTES}`,
    ];
  }
  return undefined;
}

const pageSpec = z
  .strictObject({
    name: field.text('the name of the page'),
    seed: field.integer(0, MAX_SEED),
    html_bytes: field.integer(1024, 100_000_000, 'bytes'),
    resources: z
      .array(group, { error: missingOr('must be a list of tables, each headed [[resources]]') })
      .default([]),
  })
  .superRefine(({ resources }, context) => {
    const complain = (at: number, key: string, message: string): void => {
      context.addIssue({ code: 'custom', path: ['resources', at, key], message });
    };
    resources.forEach((each, at) => {
      if (discoverer(each) === 'stylesheet' && !resources.some(isTop('stylesheet'))) {
        complain(at, 'discovered_by', 'requires a group of style sheets that the document names');
      }
      if (discoverer(each) === 'script' && !resources.some(isTop('script'))) {
        complain(at, 'discovered_by', 'requires a group of scripts that the document names');
      }
      if (each.kind === 'image' && (each.depth ?? 1) > 1 + deepestScript(resources)) {
        complain(
          at,
          'depth',
          `must be ${1 + deepestScript(resources)} or less: there are no scripts at a deeper level`,
        );
      }
    });
    const largest = resources.flatMap((each, at) => (each.largest === true ? [at] : []));
    if (largest.length > 1)
      complain(largest[1] as number, 'largest', 'is already true for another image');
  });

/** A page's composition: one HTML document and groups of resources, each requested once. */
export type PageSpec = z.infer<typeof pageSpec>;
export type ResourceGroup = PageSpec['resources'][number];

/** Returns the kind of resource that names the members of a group. */
export function discoverer({
  kind,
  discovered_by: by,
}: Pick<GroupTable, 'kind' | 'discovered_by'>): Discoverer {
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

/** Returns the number of requests of a load of the page. */
export function requestCount(spec: PageSpec): number {
  return spec.resources.reduce((sum, { count }) => sum + count, 1);
}
