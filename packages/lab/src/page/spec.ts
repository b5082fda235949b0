import { z } from 'zod';
import { MAX_SEED } from '../seed.js';
import { field, missingOr, readTomlFile, type TomlFile } from '../toml-file.js';

export const RESOURCE_KINDS = ['stylesheet', 'script', 'font', 'image'] as const;
export type ResourceKind = (typeof RESOURCE_KINDS)[number];

/** The smallest mean size of a group: its smallest member must hold a real image, font, script or style sheet. */
export const MIN_MEAN_BYTES = 2048;

const group = z
  .strictObject({
    kind: field.choice(RESOURCE_KINDS),
    count: field.integer(1, 1000, 'resources'),
    /** Bytes of the whole group. Its members differ in size, and add up to exactly this. */
    total_bytes: field.integer(MIN_MEAN_BYTES, 1_000_000_000, 'bytes'),
  })
  .refine((value) => value.total_bytes >= value.count * MIN_MEAN_BYTES, {
    path: ['total_bytes'],
    error: `must be at least ${MIN_MEAN_BYTES} for each resource of the group`,
  });

const pageSpec = z.strictObject({
  name: field.text('the name of the page'),
  seed: field.integer(0, MAX_SEED),
  html_bytes: field.integer(1024, 100_000_000, 'bytes'),
  resources: z
    .array(group, { error: missingOr('must be a list of tables, each headed [[resources]]') })
    .min(1, { error: 'must hold at least one table headed [[resources]]' }),
});

/** What a page is made of: one HTML document and groups of resources, all of them requested once. */
export type PageSpec = z.infer<typeof pageSpec>;
export type ResourceGroup = PageSpec['resources'][number];

/** Reads a page specification. */
export function readPageSpec(path: string): TomlFile<PageSpec> {
  return readTomlFile(path, 'page specification', pageSpec);
}

/** The number of requests that a load of the page makes. */
export function requestCount(spec: PageSpec): number {
  return spec.resources.reduce((sum, { count }) => sum + count, 1);
}
