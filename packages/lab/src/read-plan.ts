import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { parse } from 'smol-toml';
import { z } from 'zod';
import { ExitCode, LabError } from './errors.js';
import { CERTIFICATES } from './certificate.js';
import { withPartners } from './compare/partners.js';
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
import { ownFile } from './own-file.js';
import { MAX_SEED } from './seed.js';
import { hasPlace, PLACES, unknownPlace, type Place } from './server-command.js';
import { parseThreshold, requireNamed } from './thresholds/parse.js';
import { field, missingOr, readText, readTomlFile, suggestion } from './toml-file.js';

// Names become parts of file names and of table rows.
const name = field.text('a short name').regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$/, {
  error: 'must be 1 to 40 letters, digits, dots, dashes or underscores',
});

const yesOrNo = z.boolean({ error: missingOr('must be true or false') });
const initialWindow = field.integer(1, 1000, 'packets');

/** HTTP in clear has none to resume. */
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
    /** Instead of the arm that differs in one thing. */
    against: name.optional(),
    discovery: field.choice(DISCOVERIES).optional(),
    server: name.default(OWN_SERVER),
  })
  .refine(({ protocol, discovery }) => (protocol === 'auto') === (discovery !== undefined), {
    path: ['discovery'],
    error: 'belongs to the protocol "auto", which needs it: "alt-svc" or "https-record"',
  })
  .refine(({ protocol, visit }) => hasSessions(protocol) || visit === 'first', {
    path: ['visit'],
    error: 'must be "first" for the protocol "http", which has no session to resume',
  })
  .refine(({ protocol, tcp_slow_start_after_idle: slow }) => protocol !== 'h3' || slow !== true, {
    path: ['tcp_slow_start_after_idle'],
    error: 'belongs to TCP, and the arm is over QUIC, which has nothing of the kind',
  });

const designTable = z
  .strictObject(
    {
      protocols: z.array(field.choice(PROTOCOLS.filter((each) => each !== 'auto'))).min(1),
      congestion: z.array(field.choice(CONGESTION_CONTROLS)).min(1).optional(),
      initial_window: initialWindow.optional(),
      /** Of HTTP over TCP: with both values each arm is there twice. */
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
      error: 'belongs to TCP, and all arms are over QUIC, which has nothing of the kind',
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
      url: z.url({ protocol: /^https?$/, error: 'must be a URL that begins with https:// or http://' }).optional(),
      spki: field.text("the SHA-256 of a certificate's public key, in base64").optional(),
    },
    { error: missingOr('must be a table with `spec`, `folder` or `url`') },
  )
  .refine(({ spec, folder, url }) => [spec, folder, url].filter((each) => each !== undefined).length === 1, {
    error: 'must have one of `spec`, `folder` and `url`',
  })
  .refine(({ folder, requests }) => folder !== undefined || requests === undefined, {
    path: ['requests'],
    error: 'belongs to `folder` only; a specification knows the number itself',
  })
  .refine(({ folder, think_times: think }) => folder !== undefined || think === undefined, {
    path: ['think_times'],
    error: 'belongs to `folder` only, where that is a recording',
  })
  .refine(({ url, spki }) => url !== undefined || spki === undefined, {
    path: ['spki'],
    error: 'belongs to `url` only; the lab makes the certificates of its own servers',
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
    error: 'belongs to our own server; put the arguments of another one into its `command`',
  })
  .refine(({ args, command, reference }) => reference === undefined || (args.length === 0 && command === undefined), {
    path: ['reference'],
    error: 'stands alone: the lab knows how to start that server',
  })
  .refine(({ reference, optional }) => reference !== undefined || !optional, {
    path: ['optional'],
    error: 'belongs to `reference` only',
  });

const blocksTable = z
  .strictObject({
    min: field.integer(2, 10_000, 'blocks'),
    max: field.integer(2, 10_000, 'blocks'),
    interval_percent: z
      .number({ error: missingOr('must be a number of percent') })
      .positive()
      .max(100),
  })
  .refine(({ min, max }) => min <= max, { path: ['min'], error: 'must be at most `blocks.max`' });

const profileForm = 'must be the name or path of a link profile, or a table { file, blocks, jitter }';
const profile = z.strictObject({
  file: field.text('the path of a link profile'),
  blocks: field.integer(1, 10_000, 'blocks').optional(),
  jitter: z.boolean({ error: 'must be true or false' }).default(true),
});

/** A profile with a change that brings a new address. */
const movingProfile = z.looseObject({
  changes: z
    .array(z.looseObject({ new_client_address: z.unknown() }))
    .refine((changes) => changes.some(({ new_client_address: moves }) => moves === true)),
});

const blockCount = 'must be a whole number of blocks from 1 to 10000, or a table { min, max, interval_percent }';

const planFile = z
  .strictObject({
    name,
    seed: field.integer(0, MAX_SEED).optional(),
    blocks: z.union([field.integer(1, 10_000, 'blocks'), blocksTable], { error: missingOr(blockCount) }),
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
      .min(1, { error: 'must hold at least one table headed [[arms]]' })
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
    error: 'is missing; a plan has tables headed [[arms]], or a [design] from which they follow',
  });
type PlanFile = z.infer<typeof planFile>;

/** Reads a plan, and the profiles that it names. */
export function readPlan(path: string): Plan {
  const { text, value } = readTomlFile(path, 'plan', planFile);
  const folder = dirname(resolve(path));
  const tables = value.pages ?? (value.page === undefined ? [] : [value.page]);
  const profiles = profilesOf(value, tables, path);
  const pages = tables.map((table, at) => pageSource(table, folder, path, value.pages ? `pages[${at}]` : 'page'));
  const listed = armsOf(value, path);
  const servers = serversOf(value);
  requireControlNames(listed, path);
  requireDistinct(listed, 'arms', path);
  requireDistinct(profiles, 'profiles', path);
  requireDistinct(pages, 'pages', path);
  const baseline = value.baseline ?? (listed[0] as Arm).name;
  // The control is compared with its own arm and with nothing else, nor anything else with it.
  const ordinary = listed.filter(({ repeats }) => repeats === undefined);
  requireKnown([baseline], ordinary, 'baseline', 'arm', path);
  for (const { server } of listed) requireKnown([server], servers, 'servers', 'server', path);
  for (const { name, command } of servers) requirePlaces(name, command, path);
  requireHeard(value, listed, servers, path);
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

/** The arms that are written down, or follow from the design; and after them the second ones of the control. */
function armsOf({ arms: listed, design, control }: PlanFile, plan: string): Arm[] {
  const arms = listed?.map(armOf) ?? (design === undefined ? [] : armsOfDesign(design));
  requireKnown(control, arms, 'control', 'arm', plan);
  const again = arms.filter((arm) => control.includes(arm.name));
  return [...arms, ...again.map((arm) => ({ ...arm, name: `${arm.name}-again`, repeats: arm.name }))];
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
 * Each combination once, but for those that a protocol has not. What only some protocols have multiplies the arms of these: the
 * others are there once, whatever the list says.
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
          const parts = [named, visit === 'first' ? undefined : visit, restarts ? 'idle-restart' : undefined];
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
  return listed.some(({ name }) => name === OWN_SERVER) ? listed : [{ name: OWN_SERVER, args: [] }, ...listed];
}

function requirePlaces(server: string, command: string | undefined, plan: string): void {
  const unknown = command === undefined ? undefined : unknownPlace(command);
  if (unknown === undefined) return;
  const message = `plan ${plan}: \`servers.${server}.command\`: there is no place {${unknown}}`;
  throw new LabError(ExitCode.Malformed, message, suggestion(unknown, PLACES));
}

/**
 * Refuses a plan that asks for what nothing would pass on: of another server's command a place that it has not, of a page
 * that is loaded where it is all that a server or the link would do. TCP's controller and window are the link's to set, for
 * any server.
 */
function requireHeard(value: PlanFile, arms: readonly Arm[], servers: readonly ServerSpec[], plan: string): void {
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
    throw refuse('`servers`: a page with a `url` has a server of its own', 'leave `servers` out, or capture the page');
  }
  for (const arm of arms.filter(({ repeats }) => repeats === undefined)) {
    const asked: { place: Place; key: string; value: string }[] = [
      ...(isNamed(arm, 'congestion') && (live || usesQuic(arm))
        ? [{ place: 'congestion' as const, key: 'congestion', value: arm.congestion }]
        : []),
      ...(isNamed(arm, 'initial_window') && (live || usesQuic(arm))
        ? [{ place: 'initial_window' as const, key: 'initial_window', value: `a window of ${arm.initialWindow ?? ''}` }]
        : []),
      ...(!live && arm.visit === 'early-data'
        ? [{ place: 'early_data' as const, key: 'visit', value: 'early data' }]
        : []),
    ];
    const spec = servers.find(({ name }) => name === arm.server);
    for (const { place, key, value: wanted } of asked) {
      if (live) {
        const hint = `leave \`${key}\` out, or capture the page`;
        throw refuse(`arm ${arm.name}: \`${key}\`: a page with a \`url\` has what its own server has`, hint);
      }
      if (spec === undefined || hasPlace(spec, place, arm.congestion)) continue;
      const over = usesQuic(arm) && key !== 'visit' ? ' over QUIC' : '';
      if (spec.reference !== undefined) {
        const what = `arm ${arm.name}: \`${key}\`: the lab cannot tell ${spec.reference} of ${wanted}${over}`;
        throw refuse(what, key === 'visit' ? 'use another `visit`, or our own server' : `leave \`${key}\` out`);
      }
      throw refuse(
        `\`servers.${spec.name}.command\`: has no {${place}}, so that the arm ${arm.name} would not have ${wanted}${over}`,
        `put {${place}} where the server is told of it, or leave \`${key}\` out`,
      );
    }
  }
}

/** Refuses second visits over a link that moves the client in the visit before: no link moves it back unseen by the browser. */
function requireSameAddress(profiles: readonly ProfileFile[], arms: readonly Arm[], plan: string): void {
  const again = arms.find(({ visit }) => visit !== 'first');
  const moving = profiles.find(({ text }) => movesClient(text));
  if (again === undefined || moving === undefined) return;
  throw new LabError(
    ExitCode.Malformed,
    `plan ${plan}: arm ${again.name}: \`visit\`: the profile ${moving.name} gives the client a new address, so that the link cannot begin again for a second visit`,
    'use `visit = "first"`, or another profile',
  );
}

/** Whether a profile changes the client's address. A malformed one is refused by the link. */
function movesClient(text: string): boolean {
  try {
    return movingProfile.safeParse(parse(text)).success;
  } catch {
    return false;
  }
}

/** The links that are named, or none for pages that are loaded where they are. */
function profilesOf({ profiles }: PlanFile, pages: readonly PageTable[], plan: string): ProfileFile[] {
  const live = pages.filter(({ url }) => url !== undefined);
  const wrong = (what: string): LabError => new LabError(ExitCode.Malformed, `plan ${plan}: ${what}`);
  if (live.length === 0) {
    if (profiles.length === 0) throw wrong('`profiles`: must name at least one link profile');
    const folder = dirname(resolve(plan));
    return profiles.map((profile) => {
      const { file, blocks, jitter } = typeof profile === 'string' ? { file: profile, jitter: true } : profile;
      const profilePath = /^[a-z0-9-]+$/.test(file) ? ownProfile(file, plan) : resolve(folder, file);
      const read = readProfile(profilePath, plan);
      return {
        ...read,
        ...(!jitter && { name: `${read.name}-steady`, jitter }),
        ...(blocks !== undefined && { blocks }),
      };
    });
  }
  if (live.length < pages.length) {
    throw wrong('`pages`: those with a `url` need a plan of their own, since no emulated link leads to them');
  }
  if (profiles.length > 0) {
    throw wrong(
      '`profiles`: a page with a `url` is loaded over the network as it is; leave `profiles` out, or capture it',
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
    const what = `plan ${plan}: \`${key}.folder\`: there is no folder ${path}`;
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

/** A folder may be called anything, a page only what fits into a file name and a table. */
function nameFrom(text: string): string {
  return (
    text
      .replaceAll(/[^A-Za-z0-9._-]+/g, '-')
      .replace(/^[^A-Za-z0-9]+/, '')
      .slice(0, 40) || 'page'
  );
}

/** The profile of a name among those that come with the lab. */
function ownProfile(name: string, plan: string): string {
  const folder = ownFile('profiles');
  const names = folder === undefined ? [] : readdirSync(folder).filter((each) => each.endsWith('.toml'));
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

/** The second arm of a control has a name that the plan does not give: one that it gives to another arm is no mistake of typing. */
function requireControlNames(arms: readonly Arm[], plan: string): void {
  const taken = arms.find(
    ({ name, repeats }) => repeats !== undefined && arms.some((arm) => arm.name === name && arm.repeats === undefined),
  );
  if (taken === undefined) return;
  const message = `plan ${plan}: \`control\`: the second arm of "${taken.repeats ?? ''}" is called "${taken.name}", as an arm of the plan is`;
  throw new LabError(ExitCode.Malformed, message, 'give that arm another name');
}

function requireDistinct(items: readonly { name: string }[], key: string, plan: string): void {
  const names = items.map((item) => item.name);
  const twice = names.find((each, at) => names.indexOf(each) !== at);
  if (twice !== undefined) {
    throw new LabError(ExitCode.Malformed, `plan ${plan}: \`${key}\`: the name "${twice}" is there twice`);
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
  const message = `plan ${plan}: \`${key}\`: there is no ${what} "${unknown}"`;
  throw new LabError(ExitCode.Malformed, message, `the plan has ${known}`);
}
