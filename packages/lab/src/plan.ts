import { statSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { z } from 'zod';
import { ExitCode, LabError } from './errors.js';
import { MAX_SEED } from './seed.js';
import { field, missingOr, readText, readTomlFile } from './toml-file.js';

export const PROTOCOLS = ['h1', 'h2', 'h3'] as const;
export type Protocol = (typeof PROTOCOLS)[number];

export const CONGESTION_CONTROLS = ['cubic', 'bbr', 'newreno'] as const;
/** The algorithm that the server uses for TCP and for QUIC, and the client's kernel for TCP. */
export type Congestion = (typeof CONGESTION_CONTROLS)[number];

/** One way to load the page. */
export interface Arm {
  readonly name: string;
  readonly protocol: Protocol;
  readonly congestion: Congestion;
}

/** A link profile of `pronghorn link`: the lab hands the file on and checks only that it can be read. */
export interface ProfileFile {
  readonly name: string;
  readonly path: string;
  readonly text: string;
}

export type PageSource =
  | { readonly kind: 'spec'; readonly path: string }
  | { readonly kind: 'folder'; readonly path: string; readonly requests: number | undefined };

/** A checked plan. Each path in it is absolute. */
export interface Plan {
  readonly path: string;
  readonly text: string;
  readonly name: string;
  /** The plan's own seed; without one a campaign draws its own and records it. */
  readonly seed: number | undefined;
  readonly blocks: number;
  /** How long one load may take before it counts as not completed. */
  readonly timeoutSeconds: number;
  readonly page: PageSource;
  readonly profiles: readonly ProfileFile[];
  readonly arms: readonly Arm[];
}

// Names become parts of file names and of table rows.
const name = field.text('a short name').regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$/, {
  error: 'must be 1 to 40 letters, digits, dots, dashes or underscores',
});

const arm = z.strictObject({
  name,
  protocol: field.choice(PROTOCOLS),
  congestion: field.choice(CONGESTION_CONTROLS).default('cubic'),
});

const page = z
  .strictObject(
    {
      spec: field.text('the path of a page specification').optional(),
      folder: field.text('the path of a folder with an index.html').optional(),
      requests: field.integer(1, 10_000, 'requests').optional(),
    },
    { error: missingOr('must be a table with `spec` or `folder`') },
  )
  .refine((value) => (value.spec === undefined) !== (value.folder === undefined), {
    error: 'must have either `spec` or `folder`',
  })
  .refine((value) => value.spec === undefined || value.requests === undefined, {
    path: ['requests'],
    error: 'belongs to `folder` only; a specification knows the number itself',
  });

const planFile = z.strictObject({
  name,
  seed: field.integer(0, MAX_SEED).optional(),
  blocks: field.integer(1, 10_000, 'blocks'),
  timeout_seconds: field.integer(1, 600, 'seconds').default(60),
  profiles: z
    .array(field.text('the path of a link profile'), { error: missingOr('must be a list of paths of link profiles') })
    .min(1, { error: 'must name at least one link profile' }),
  page,
  arms: z
    .array(arm, { error: missingOr('must be a list of tables, each headed [[arms]]') })
    .min(1, { error: 'must hold at least one table headed [[arms]]' }),
});

/** Reads a plan, and the profiles that it names. */
export function readPlan(path: string): Plan {
  const { text, value } = readTomlFile(path, 'plan', planFile);
  const folder = dirname(resolve(path));
  const profiles = value.profiles.map((profile) => readProfile(resolve(folder, profile), path));
  requireDistinct(value.arms, 'arms', path);
  requireDistinct(profiles, 'profiles', path);
  return {
    path: resolve(path),
    text,
    name: value.name,
    seed: value.seed,
    blocks: value.blocks,
    timeoutSeconds: value.timeout_seconds,
    page: pageSource(value.page, folder, path),
    profiles,
    arms: value.arms,
  };
}

function pageSource(table: z.infer<typeof page>, folder: string, plan: string): PageSource {
  if (table.spec !== undefined) return { kind: 'spec', path: resolve(folder, table.spec) };
  const path = resolve(folder, table.folder ?? '');
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) {
    throw new LabError(
      ExitCode.InputMissing,
      `plan ${plan}: \`page.folder\`: there is no folder ${path}`,
      'check the path',
    );
  }
  return { kind: 'folder', path, requests: table.requests };
}

function readProfile(path: string, plan: string): ProfileFile {
  const text = readText(path, `plan ${plan}: \`profiles\`: the link profile`);
  return { name: basename(path).replace(/\.toml$/, ''), path, text };
}

function requireDistinct(items: readonly { name: string }[], key: string, plan: string): void {
  const names = items.map((item) => item.name);
  const twice = names.find((each, at) => names.indexOf(each) !== at);
  if (twice !== undefined) {
    throw new LabError(ExitCode.Malformed, `plan ${plan}: \`${key}\`: the name "${twice}" is there twice`);
  }
}
