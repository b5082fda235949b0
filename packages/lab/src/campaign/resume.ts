import { readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { readCampaign, type Campaign } from './campaign-file.js';
import { ExitCode, LabError } from '../io/errors.js';
import { Looks } from '../samples/look.js';
import { readSamplesAsWritten, SAMPLES } from '../samples/samples-file.js';
import { pickMade, type LoadFacts } from '../compare/stopping-rule.js';

/** A campaign to resume. */
export interface Resumption {
  /** The campaign as it is in the folder, with one more sitting. */
  readonly campaign: Campaign;
  /** Numbers of the loads that are done. */
  readonly done: ReadonlySet<number>;
  /** The loads that are done. */
  readonly made: readonly LoadFacts[];
  /** Observation times that its rehearsals determined. */
  readonly looks: Looks;
}

/**
 * Prepares to resume the campaign of an output folder. `now` describes the plan as a new campaign
 * on this machine. Figures from before and after are pooled, so nothing that could affect them may
 * have changed.
 */
export async function prepareResumption(out: string, now: Campaign): Promise<Resumption> {
  const campaign = readCampaign(out);
  if (campaign.status === 'finished') {
    throw new LabError(
      ExitCode.CannotCreate,
      `the campaign in ${out} is finished`,
      'use another --out for a new one',
    );
  }
  const changed = whatChanged(campaign, now);
  if (changed !== undefined) {
    const hint = 'restore it, or start a new campaign with another --out';
    throw new LabError(
      ExitCode.Malformed,
      `the campaign in ${out} cannot be resumed: ${changed}`,
      hint,
    );
  }
  const path = join(out, SAMPLES);
  dropTornLine(path);
  const done = new Set<number>();
  const made: LoadFacts[] = [];
  const looks = new Looks();
  for await (const sample of readSamplesAsWritten(path)) {
    done.add(sample.load);
    made.push(pickMade(sample));
    looks.add(sample);
  }
  const elsewhere = isDeepStrictEqual(campaign.environment, now.environment)
    ? {}
    : { environment: now.environment };
  const sittings = [
    ...campaign.sittings,
    ...now.sittings.map((sitting) => ({ ...sitting, ...elsewhere })),
  ];
  return { campaign: { ...campaign, status: 'running', sittings }, done, made, looks };
}

/** Describes the first difference between the campaign and the plan. */
function whatChanged(before: Campaign, now: Campaign): string | undefined {
  if (before.plan.sha256 !== now.plan.sha256) return 'the plan has changed';
  const profile = now.profiles.find(({ name, sha256 }) => hashOf(before.profiles, name) !== sha256);
  if (profile !== undefined) return `the profile ${profile.name} has changed`;
  const page = now.pages.find((each) => !isSamePage(each, before.pages));
  if (page !== undefined) return `the page ${page.name} has changed`;
  const arm = [...now.arms, ...before.arms].find(
    ({ name }) =>
      !before.arms.some((each) => each.name === name) ||
      !now.arms.some((each) => each.name === name),
  );
  if (arm !== undefined) return `the arm ${arm.name} is skipped in only one of its sittings`;
  const other = now.arms.find(
    (each) => !isDeepStrictEqual(armIn(before.arms, each.name), asWritten(each)),
  );
  if (other !== undefined) return `the arm ${other.name} has changed`;
  const server = now.servers.find(
    ({ name, version }) => versionIn(before.servers, name) !== version,
  );
  if (server !== undefined) return `the server ${server.name} has another version`;
  if (before.watched !== now.watched) return '--watch-all was given to only one of its sittings';
  const program = PROGRAMS.find(([, key]) => before.environment[key] !== now.environment[key]);
  if (program === undefined) return undefined;
  const [name, key] = program;
  const inWords = (value = 'unknown'): string => value.slice(0, 16);
  return `${name} was ${inWords(before.environment[key])}, and is ${inWords(now.environment[key])}`;
}

/** The machine itself may differ: each block has all arms, so they share its influence. */
const PROGRAMS = [
  ['Chromium', 'chromium'],
  ['pronghorn (sha256)', 'pronghornSha256'],
  ['the version of the lab', 'lab'],
  ['the lab (sha256)', 'labSha256'],
] as const;

function armIn(arms: Campaign['arms'], name: string): Campaign['arms'][number] | undefined {
  return arms.find((arm) => arm.name === name);
}

function asWritten(arm: Campaign['arms'][number]): unknown {
  return JSON.parse(JSON.stringify(arm));
}

function isSamePage(
  { name, sha256, filesSha256 }: Campaign['pages'][number],
  pages: Campaign['pages'],
): boolean {
  return pages.some(
    (page) => page.name === name && page.sha256 === sha256 && page.filesSha256 === filesSha256,
  );
}

function versionIn(servers: Campaign['servers'], name: string): string | undefined {
  return servers.find((server) => server.name === name)?.version;
}

function hashOf(
  items: readonly { name: string; sha256?: string | undefined }[],
  name: string,
): string | undefined {
  return items.find((item) => item.name === name)?.sha256;
}

/** A process killed during a write leaves half a line, whose load is repeated. */
function dropTornLine(path: string): void {
  const bytes = readFileSync(path);
  const end = bytes.lastIndexOf(0x0a) + 1;
  if (end < bytes.length) truncateSync(path, end);
}
