import { readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { readCampaign, type Campaign } from './campaign-file.js';
import { ExitCode, LabError } from './errors.js';
import { Looks } from './look.js';
import { readSamplesAsWritten, SAMPLES } from './samples-file.js';
import { pickMade, type Made } from './compare/stopping-rule.js';

/** A campaign to go on with. */
export interface Resumption {
  /** As it stands in the folder, with one more sitting. */
  readonly campaign: Campaign;
  /** The numbers of the loads that are done. */
  readonly done: ReadonlySet<number>;
  /** These loads. */
  readonly made: readonly Made[];
  /** As its rehearsals have decided. */
  readonly looks: Looks;
}

/**
 * Takes up the campaign of an output folder. `now` is what the plan would be as a new campaign here: figures of before
 * and after are pooled, so that nothing that could move them may have changed.
 */
export async function prepareResumption(out: string, now: Campaign): Promise<Resumption> {
  const campaign = readCampaign(out);
  if (campaign.status === 'finished') {
    throw new LabError(ExitCode.CannotCreate, `the campaign in ${out} is finished`, 'name another --out for a new one');
  }
  const changed = whatChanged(campaign, now);
  if (changed !== undefined) {
    const hint = 'put it back, or start a campaign of its own with another --out';
    throw new LabError(ExitCode.Malformed, `the campaign in ${out} cannot go on: ${changed}`, hint);
  }
  const path = join(out, SAMPLES);
  dropTornLine(path);
  const done = new Set<number>();
  const made: Made[] = [];
  const looks = new Looks();
  for await (const sample of readSamplesAsWritten(path)) {
    done.add(sample.load);
    made.push(pickMade(sample));
    looks.add(sample);
  }
  const elsewhere = isDeepStrictEqual(campaign.environment, now.environment) ? {} : { environment: now.environment };
  const sittings = [...campaign.sittings, ...now.sittings.map((sitting) => ({ ...sitting, ...elsewhere }))];
  return { campaign: { ...campaign, status: 'running', sittings }, done, made, looks };
}

/** The first thing that is not as it was, in words. */
function whatChanged(before: Campaign, now: Campaign): string | undefined {
  if (before.plan.sha256 !== now.plan.sha256) return 'the plan has changed';
  const profile = now.profiles.find(({ name, sha256 }) => hashOf(before.profiles, name) !== sha256);
  if (profile !== undefined) return `the profile ${profile.name} has changed`;
  const page = now.pages.find((each) => !isSamePage(each, before.pages));
  if (page !== undefined) return `the page ${page.name} has changed`;
  const arm = [...now.arms, ...before.arms].find(
    ({ name }) => !before.arms.some((each) => each.name === name) || !now.arms.some((each) => each.name === name),
  );
  if (arm !== undefined) return `the arm ${arm.name} is left out in only one of its sittings`;
  const other = now.arms.find((each) => !isDeepStrictEqual(armIn(before.arms, each.name), asWritten(each)));
  if (other !== undefined) return `the arm ${other.name} has changed`;
  const server = now.servers.find(({ name, version }) => versionIn(before.servers, name) !== version);
  if (server !== undefined) return `the server ${server.name} has another version`;
  if (before.watched !== now.watched) return '--watch-all was given to only one of its sittings';
  const program = PROGRAMS.find(([, key]) => before.environment[key] !== now.environment[key]);
  if (program === undefined) return undefined;
  const [name, key] = program;
  const inWords = (value = 'another one'): string => value.slice(0, 16);
  return `${name} was ${inWords(before.environment[key])}, and is ${inWords(now.environment[key])}`;
}

/** The machine may be another one: each block has all arms, so that they share what it does to them. */
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

function isSamePage({ name, sha256, filesSha256 }: Campaign['pages'][number], pages: Campaign['pages']): boolean {
  return pages.some((page) => page.name === name && page.sha256 === sha256 && page.filesSha256 === filesSha256);
}

function versionIn(servers: Campaign['servers'], name: string): string | undefined {
  return servers.find((server) => server.name === name)?.version;
}

function hashOf(items: readonly { name: string; sha256?: string | undefined }[], name: string): string | undefined {
  return items.find((item) => item.name === name)?.sha256;
}

/** A process that is killed while it writes leaves half a line, whose load is made again. */
function dropTornLine(path: string): void {
  const bytes = readFileSync(path);
  const end = bytes.lastIndexOf(0x0a) + 1;
  if (end < bytes.length) truncateSync(path, end);
}
