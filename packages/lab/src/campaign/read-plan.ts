import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { parse } from 'smol-toml';
import { z } from 'zod';
import { ExitCode, LabError } from '../io/errors.js';
import { CERTIFICATES } from '../run/certificate.js';
import { withPartners } from '../compare/partners.js';
import {
  BROWSERS,
  CONGESTION_CONTROLS,
  DEFAULT_CONGESTION,
  DISCOVERIES,
  LIVE,
  OWN_SERVER,
  PROTOCOLS,
  REFERENCES,
  usesQuic,
  usesTcp,
  VISITS,
  type Arm,
  type Blocks,
  type PageSource,
  type Plan,
  type ProfileFile,
  type ServerSpec,
} from './plan.js';
import { bundledFile } from '../io/bundled-file.js';
import { MAX_SEED } from './seed.js';
import {
  receivesPlaceholder,
  PLACEHOLDERS,
  unknownPlaceholder,
  type Placeholder,
} from '../run/server-command.js';
import { parseThreshold, requireNamed } from '../thresholds/parse.js';
import { field, missingOr, readText, readTomlFile, suggestion } from '../io/toml-file.js';

// Names become parts of file names and table rows.
const name = field.text('a short name').regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$/, {
  error: 'must be 1 to 40 letters, digits, dots, dashes or underscores',
});

const yesOrNo = z.boolean({ error: missingOr('must be true or false') });
const initialWindow = field.integer(1, 1000, 'packets');

/** HTTP without TLS has no sessions to resume. */
function hasSessions(protocol: Arm['protocol']): boolean {
  return protocol !== 'http';
}

const arm = z
  .strictObject({
    name,
    protocol: field.choice(PROTOCOLS),
    congestion: field.choice(CONGESTION_CONTROLS).optional(),
    initial_window: initialWindow.optional(),
    tcp_slow_start_after_idle: yesOrNo.optional(),
    visit: field.choice(VISITS).default('first'),
    /** Overrides the default partner, an arm that differs in one setting. */
    against: name.optional(),
    discovery: field.choice(DISCOVERIES).optional(),
    server: name.default(OWN_SERVER),
  })
  .refine(({ protocol, discovery }) => (protocol === 'auto') === (discovery !== undefined), {
    path: ['discovery'],
    error:
      'is required for the protocol "auto" and not allowed for others: "alt-svc" or "https-record"',
  })
  .refine(({ protocol, visit }) => hasSessions(protocol) || visit === 'first', {
    path: ['visit'],
    error: 'must be "first" for the protocol "http", which has no session to resume',
  })
  .refine(({ protocol, tcp_slow_start_after_idle: slow }) => protocol !== 'h3' || slow !== true, {
    path: ['tcp_slow_start_after_idle'],
    error: 'is a TCP setting, and the arm uses QUIC, which has none like it',
  });

const designTable = z
  .strictObject(
    {
      protocols: z.array(field.choice(PROTOCOLS.filter((each) => each !== 'auto'))).min(1),
      congestion: z.array(field.choice(CONGESTION_CONTROLS)).min(1).optional(),
      initial_window: initialWindow.optional(),
      /** For HTTP over TCP: with both values each arm exists twice. */
      tcp_slow_start_after_idle: z.array(yesOrNo).min(1).default([false]),
      visits: z.array(field.choice(VISITS)).min(1).default(['first']),
      server: name.default(OWN_SERVER),
    },
    { error: missingOr('must be a table with `protocols`') },
  )
  .refine(({ protocols, visits }) => protocols.every(hasSessions) || visits.includes('first'), {
    path: ['visits'],
    error: 'must have "first" for the protocol "http", which has no session to resume',
  })
  .refine(
    ({ protocols, tcp_slow_start_after_idle: slow }) =>
      protocols.some((protocol) => usesTcp({ protocol })) || !slow.includes(true),
    {
      path: ['tcp_slow_start_after_idle'],
      error: 'is a TCP setting, and all arms use QUIC, which has none like it',
    },
  );

const page = z
  .strictObject(
    {
      name: name.optional(),
      spec: field.text('the path of a page specification').optional(),
      folder: field.text('the path of a folder with an index.html').optional(),
      requests: field.integer(1, 10_000, 'requests').optional(),
      think_times: yesOrNo.optional(),
      url: z
        .url({ protocol: /^https?$/, error: 'must be a URL that begins with https:// or http://' })
        .optional(),
      spki: field.text("the SHA-256 of a certificate's public key, in base64").optional(),
    },
    { error: missingOr('must be a table with `spec`, `folder` or `url`') },
  )
  .refine(
    ({ spec, folder, url }) =>
      [spec, folder, url].filter((each) => each !== undefined).length === 1,
    {
      error: 'must have exactly one of `spec`, `folder` and `url`',
    },
  )
  .refine(({ folder, requests }) => folder !== undefined || requests === undefined, {
    path: ['requests'],
    error: 'is for `folder` only; a specification determines the number itself',
  })
  .refine(({ folder, think_times: think }) => folder !== undefined || think === undefined, {
    path: ['think_times'],
    error: 'is only for a `folder` that is a recording',
  })
  .refine(({ url, spki }) => url !== undefined || spki === undefined, {
    path: ['spki'],
    error: 'is for `url` only; the lab makes the certificates of its own servers',
  });
type PageTable = z.infer<typeof page>;

const server = z
  .strictObject({
    args: z.array(z.string()).default([]),
    command: field.text('a command line').optional(),
    reference: field.choice(REFERENCES).optional(),
    optional: yesOrNo.default(false),
  })
  .refine(({ args, command }) => args.length === 0 || command === undefined, {
    path: ['args'],
    error: 'is for pronghorn only; put the arguments of another server into its `command`',
  })
  .refine(
    ({ args, command, reference }) =>
      reference === undefined || (args.length === 0 && command === undefined),
    {
      path: ['reference'],
      error: 'excludes `args` and `command`: the lab knows how to start that server',
    },
  )
  .refine(({ reference, optional }) => reference !== undefined || !optional, {
    path: ['optional'],
    error: 'is for `reference` only',
  });

const blocksTable = z
  .strictObject({
    min: field.integer(2, 10_000, 'blocks'),
    max: field.integer(2, 10_000, 'blocks'),
    interval_percent: z
      .number({ error: missingOr('must be a percentage') })
      .positive()
      .max(100),
  })
  .refine(({ min, max }) => min <= max, { path: ['min'], error: 'must be at most `blocks.max`' });

const profileForm =
  'must be the name or path of a link profile, or a table { file, blocks, jitter }';
const profile = z.strictObject({
  file: field.text('the path of a link profile'),
  blocks: field.integer(1, 10_000, 'blocks').optional(),
  jitter: z.boolean({ error: 'must be true or false' }).default(true),
});

/** Profile with a scheduled change of the client's address. */
const movingProfile = z.looseObject({
  changes: z
    .array(z.looseObject({ new_client_address: z.unknown() }))
    .refine((changes) => changes.some(({ new_client_address: moves }) => moves === true)),
});

const blockCount =
  'must be a whole number of blocks from 1 to 10000, or a table { min, max, interval_percent }';

const planFile = z
  .strictObject({
    name,
    seed: field.integer(0, MAX_SEED).optional(),
    blocks: z.union([field.integer(1, 10_000, 'blocks'), blocksTable], {
      error: missingOr(blockCount),
    }),
    timeout_seconds: field.integer(1, 600, 'seconds').default(60),
    browser: field.choice(BROWSERS).default('cold'),
    certificate: field.choice(CERTIFICATES).default('small'),
    profiles: z
      .array(z.union([field.text('the path of a link profile'), profile], { error: profileForm }), {
        error: missingOr('must be a list of link profiles'),
      })
      .default([]),
    page: page.optional(),
    pages: z.array(page).min(1).optional(),
    servers: z.record(name, server).default({}),
    arms: z
      .array(arm, { error: 'must be a list of tables, each headed [[arms]]' })
      .min(1, { error: 'must contain at least one table headed [[arms]]' })
      .optional(),
    design: designTable.optional(),
    /** Arms that are loaded twice in each block. */
    control: z.array(name).default([]),
    baseline: name.optional(),
    conformance: z.boolean({ error: 'must be true or false' }).default(false),
    fail_if: z.array(field.text('a threshold')).default([]),
  })
  .refine((value) => (value.page === undefined) !== (value.pages === undefined), {
    path: ['page'],
    error: 'is missing; a plan has one [page], or several tables headed [[pages]]',
  })
  .refine((value) => (value.arms === undefined) !== (value.design === undefined), {
    path: ['arms'],
    error: 'is missing; a plan has tables headed [[arms]], or a [design] that generates them',
  });
type PlanFile = z.infer<typeof planFile>;

/** Reads a plan and the profiles that it names. */
export function readPlan(path: string): Plan {
  const { text, value } = readTomlFile(path, 'plan', planFile);
  const folder = dirname(resolve(path));
  const tables = value.pages ?? (value.page === undefined ? [] : [value.page]);
  const profiles = profilesOf(value, tables, path);
  const pages = tables.map((table, at) =>
    pageSource(table, folder, path, value.pages ? `pages[${at}]` : 'page'),
  );
  const listed = armsOf(value, path);
  const servers = serversOf(value);
  requireControlNames(listed, path);
  requireDistinct(listed, 'arms', path);
  requireDistinct(profiles, 'profiles', path);
  requireDistinct(pages, 'pages', path);
  const baseline = value.baseline ?? (listed[0] as Arm).name;
  // A control is compared with its own arm only, and no other arm with it.
  const ordinary = listed.filter(({ repeats }) => repeats === undefined);
  requireKnown([baseline], ordinary, 'baseline', 'arm', path);
  for (const { server } of listed) requireKnown([server], servers, 'servers', 'server', path);
  for (const { name, command } of servers) requirePlaces(name, command, path);
  requireEffectiveSettings(value, listed, servers, path);
  requireSameAddress(profiles, listed, path);
  const arms = withPartners(listed, baseline, path);
  value.fail_if.forEach((condition, at) => {
    const origin = { name: `plan ${path}: \`fail_if[${at}]\``, exitCode: ExitCode.Malformed };
    requireNamed(parseThreshold(condition, origin), { arms, profiles, pages });
  });
  return {
    path: resolve(path),
    text,
    name: value.name,
    seed: value.seed,
    blocks: blocksOf(value.blocks),
    timeoutSeconds: value.timeout_seconds,
    browser: value.browser,
    certificate: value.certificate,
    pages,
    profiles,
    servers,
    arms,
    baseline,
    conformance: value.conformance,
    failIf: value.fail_if,
  };
}

function blocksOf(value: PlanFile['blocks']): Blocks {
  if (typeof value === 'number') return { min: value, max: value, intervalPercent: undefined };
  return { min: value.min, max: value.max, intervalPercent: value.interval_percent };
}

/** Returns the listed or generated arms, followed by the copies for the control. */
function armsOf({ arms: listed, design, control }: PlanFile, plan: string): Arm[] {
  const arms = listed?.map(armOf) ?? (design === undefined ? [] : armsOfDesign(design));
  requireKnown(control, arms, 'control', 'arm', plan);
  const again = arms.filter((arm) => control.includes(arm.name));
  return [
    ...arms,
    ...again.map((arm) => ({ ...arm, name: `${arm.name}-again`, repeats: arm.name })),
  ];
}

function armOf({
  discovery,
  initial_window: initialWindow,
  tcp_slow_start_after_idle: slowStartAfterIdle,
  against,
  congestion = DEFAULT_CONGESTION,
  ...rest
}: z.infer<typeof arm>): Arm {
  return {
    ...rest,
    congestion,
    ...(initialWindow !== undefined && { initialWindow }),
    ...(slowStartAfterIdle === true && { slowStartAfterIdle }),
    ...(discovery && { discovery }),
    ...(against !== undefined && { comparedWith: against }),
  };
}

/**
 * Returns each valid combination once. A setting that only some protocols have multiplies only
 * their arms; the other protocols have one arm each.
 */
function armsOfDesign(design: z.infer<typeof designTable>): Arm[] {
  const { protocols, congestion, visits, server, initial_window: initialWindow } = design;
  const afterIdle = [...new Set(design.tcp_slow_start_after_idle)];
  const arms: Arm[] = [];
  for (const visit of visits) {
    for (const named of congestion ?? [undefined]) {
      for (const slowStartAfterIdle of afterIdle) {
        for (const protocol of protocols) {
          if (!hasSessions(protocol) && visit !== 'first') continue;
          if (!usesTcp({ protocol }) && slowStartAfterIdle !== afterIdle[0]) continue;
          const restarts = slowStartAfterIdle && usesTcp({ protocol });
          const parts = [
            named,
            visit === 'first' ? undefined : visit,
            restarts ? 'idle-restart' : undefined,
          ];
          arms.push({
            name: [protocol, ...parts.filter((part) => part !== undefined)].join('-'),
            protocol,
            congestion: named ?? DEFAULT_CONGESTION,
            visit,
            server,
            ...(initialWindow !== undefined && { initialWindow }),
            ...(restarts && { slowStartAfterIdle }),
          });
        }
      }
    }
  }
  return arms;
}

function serversOf({ servers }: PlanFile): ServerSpec[] {
  const listed = Object.entries(servers).map(([name, { args, command, reference, optional }]) => ({
    name,
    args,
    ...(command !== undefined && { command }),
    ...(reference !== undefined && { reference }),
    ...(optional && { optional }),
  }));
  return listed.some(({ name }) => name === OWN_SERVER)
    ? listed
    : [{ name: OWN_SERVER, args: [] }, ...listed];
}

function requirePlaces(server: string, command: string | undefined, plan: string): void {
  const unknown = command === undefined ? undefined : unknownPlaceholder(command);
  if (unknown === undefined) return;
  const message = `plan ${plan}: \`servers.${server}.command\`: unknown placeholder {${unknown}}`;
  throw new LabError(ExitCode.Malformed, message, suggestion(unknown, PLACEHOLDERS));
}

/**
 * Refuses a plan with settings that would have no effect: a setting without a placeholder in
 * another server's command, or for a page with a `url` any setting of the server or the link. TCP's
 * controller and window are set by the link, for any server.
 */
function requireEffectiveSettings(
  value: PlanFile,
  arms: readonly Arm[],
  servers: readonly ServerSpec[],
  plan: string,
): void {
  const refuse = (what: string, hint: string): LabError =>
    new LabError(ExitCode.Malformed, `plan ${plan}: ${what}`, hint);
  const { congestion, initial_window: initialWindow } = value.design ?? {};
  const listed = value.arms ?? [];
  const isNamed = ({ name }: Arm, key: 'congestion' | 'initial_window'): boolean => {
    const own = listed.find((each) => each.name === name);
    return own === undefined
      ? (key === 'congestion' ? congestion : initialWindow) !== undefined
      : own[key] !== undefined;
  };
  const live = [value.page, ...(value.pages ?? [])].some((each) => each?.url !== undefined);
  if (live && Object.keys(value.servers).length > 0) {
    throw refuse(
      '`servers`: a page with a `url` is served by its own server',
      'remove `servers`, or capture the page',
    );
  }
  for (const arm of arms.filter(({ repeats }) => repeats === undefined)) {
    const asked: { place: Placeholder; key: string; value: string }[] = [
      ...(isNamed(arm, 'congestion') && (live || usesQuic(arm))
        ? [{ place: 'congestion' as const, key: 'congestion', value: arm.congestion }]
        : []),
      ...(isNamed(arm, 'initial_window') && (live || usesQuic(arm))
        ? [
            {
              place: 'initial_window' as const,
              key: 'initial_window',
              value: `a window of ${arm.initialWindow ?? ''}`,
            },
          ]
        : []),
      ...(!live && arm.visit === 'early-data'
        ? [{ place: 'early_data' as const, key: 'visit', value: 'early data' }]
        : []),
    ];
    const spec = servers.find(({ name }) => name === arm.server);
    for (const { place, key, value: wanted } of asked) {
      if (live) {
        const hint = `remove \`${key}\`, or capture the page`;
        throw refuse(
          `arm ${arm.name}: \`${key}\`: cannot be set for a page with a \`url\`, which its own server decides`,
          hint,
        );
      }
      if (spec === undefined || receivesPlaceholder(spec, place, arm.congestion)) continue;
      const over = usesQuic(arm) && key !== 'visit' ? ' over QUIC' : '';
      if (spec.reference !== undefined) {
        const what = `arm ${arm.name}: \`${key}\`: the lab cannot configure ${spec.reference} for ${wanted}${over}`;
        throw refuse(
          what,
          key === 'visit' ? 'use another `visit`, or pronghorn as the server' : `remove \`${key}\``,
        );
      }
      throw refuse(
        `\`servers.${spec.name}.command\`: lacks {${place}}, so the arm ${arm.name} would not use ${wanted}${over}`,
        `add the option with {${place}} to the command, or remove \`${key}\``,
      );
    }
  }
}

/**
 * Refuses repeat visits over a link that gives the client a new address: it would change during the
 * first visit, and the link cannot change it back without the browser noticing.
 */
function requireSameAddress(
  profiles: readonly ProfileFile[],
  arms: readonly Arm[],
  plan: string,
): void {
  const again = arms.find(({ visit }) => visit !== 'first');
  const moving = profiles.find(({ text }) => movesClient(text));
  if (again === undefined || moving === undefined) return;
  throw new LabError(
    ExitCode.Malformed,
    `plan ${plan}: arm ${again.name}: \`visit\`: the profile ${moving.name} gives the client a new address, so the link cannot restart for a repeat visit`,
    'use `visit = "first"`, or another profile',
  );
}

/** Returns whether a profile changes the client's address. The link refuses a malformed profile. */
function movesClient(text: string): boolean {
  try {
    return movingProfile.safeParse(parse(text)).success;
  } catch {
    return false;
  }
}

/** Reads the profiles that the plan names; there are none for pages with a `url`. */
function profilesOf(
  { profiles }: PlanFile,
  pages: readonly PageTable[],
  plan: string,
): ProfileFile[] {
  const live = pages.filter(({ url }) => url !== undefined);
  const wrong = (what: string): LabError =>
    new LabError(ExitCode.Malformed, `plan ${plan}: ${what}`);
  if (live.length === 0) {
    if (profiles.length === 0) throw wrong('`profiles`: must name at least one link profile');
    const folder = dirname(resolve(plan));
    return profiles.map((profile) => {
      const { file, blocks, jitter } =
        typeof profile === 'string' ? { file: profile, jitter: true } : profile;
      const profilePath = /^[a-z0-9-]+$/.test(file)
        ? ownProfile(file, plan)
        : resolve(folder, file);
      const read = readProfile(profilePath, plan);
      return {
        ...read,
        ...(!jitter && { name: `${read.name}-steady`, jitter }),
        ...(blocks !== undefined && { blocks }),
      };
    });
  }
  if (live.length < pages.length) {
    throw wrong(
      '`pages`: pages with a `url` need a separate plan, since no emulated link leads to them',
    );
  }
  if (profiles.length > 0) {
    throw wrong(
      '`profiles`: a page with a `url` is loaded over the real network; remove `profiles`, or capture the page',
    );
  }
  return [LIVE];
}

function pageSource(table: PageTable, folder: string, plan: string, key: string): PageSource {
  if (table.spec !== undefined) {
    const path = resolve(folder, table.spec);
    return { kind: 'spec', name: table.name ?? nameFrom(basename(path, '.toml')), path };
  }
  if (table.url !== undefined) {
    const name = table.name ?? nameFrom(new URL(table.url).hostname);
    return { kind: 'url', name, url: table.url, spki: table.spki };
  }
  const path = resolve(folder, table.folder ?? '');
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) {
    const what = `plan ${plan}: \`${key}.folder\`: cannot find the folder ${path}`;
    throw new LabError(ExitCode.InputMissing, what, 'check the path');
  }
  return {
    kind: 'folder',
    name: table.name ?? nameFrom(basename(path)),
    path,
    requests: table.requests,
    thinkTimes: table.think_times,
  };
}

/**
 * Returns a valid page name: a folder may have any name, a page only one that fits into a file name
 * and a table.
 */
function nameFrom(text: string): string {
  return (
    text
      .replaceAll(/[^A-Za-z0-9._-]+/g, '-')
      .replace(/^[^A-Za-z0-9]+/, '')
      .slice(0, 40) || 'page'
  );
}

/** Returns the path of a profile that comes with the lab. */
function ownProfile(name: string, plan: string): string {
  const folder = bundledFile('profiles');
  const names =
    folder === undefined ? [] : readdirSync(folder).filter((each) => each.endsWith('.toml'));
  const file = `${name}.toml`;
  if (folder !== undefined && names.includes(file)) return join(folder, file);
  const message = `plan ${plan}: \`profiles\`: no profile ${name} comes with the lab; a file of your own ends in .toml`;
  throw new LabError(
    ExitCode.Malformed,
    message,
    suggestion(
      name,
      names.map((each) => basename(each, '.toml')),
    ),
  );
}

function readProfile(path: string, plan: string): ProfileFile {
  const text = readText(path, `plan ${plan}: \`profiles\`: the link profile`);
  return { name: basename(path).replace(/\.toml$/, ''), path, text };
}

/**
 * Checks the names of the control's copies, with an error of its own: the plan contains such a name
 * only once, so "duplicate name" would be puzzling.
 */
function requireControlNames(arms: readonly Arm[], plan: string): void {
  const taken = arms.find(
    ({ name, repeats }) =>
      repeats !== undefined && arms.some((arm) => arm.name === name && arm.repeats === undefined),
  );
  if (taken === undefined) return;
  const message = `plan ${plan}: \`control\`: the copy of "${taken.repeats ?? ''}" would be named "${taken.name}", which is already an arm of the plan`;
  throw new LabError(ExitCode.Malformed, message, 'give that arm another name');
}

function requireDistinct(items: readonly { name: string }[], key: string, plan: string): void {
  const names = items.map((item) => item.name);
  const twice = names.find((each, at) => names.indexOf(each) !== at);
  if (twice !== undefined) {
    throw new LabError(ExitCode.Malformed, `plan ${plan}: \`${key}\`: duplicate name "${twice}"`);
  }
}

function requireKnown(
  names: readonly string[],
  items: readonly { name: string }[],
  key: string,
  what: string,
  plan: string,
): void {
  const unknown = names.find((each) => !items.some((item) => item.name === each));
  if (unknown === undefined) return;
  const known = items.map((item) => `"${item.name}"`).join(', ');
  const message = `plan ${plan}: \`${key}\`: unknown ${what} "${unknown}"`;
  throw new LabError(ExitCode.Malformed, message, `the plan has ${known}`);
}
