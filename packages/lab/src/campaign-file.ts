import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writingTo } from './disk.js';
import { ExitCode, LabError } from './errors.js';
import { CERTIFICATES } from './certificate.js';
import { BROWSERS, CONGESTION_CONTROLS, DISCOVERIES, PROTOCOLS, REFERENCES, VISITS } from './plan.js';

export const CAMPAIGN = 'campaign.json';

const environment = z.object({
  system: z.string(),
  cpu: z.string(),
  cpus: z.number(),
  memoryMebibytes: z.number(),
  node: z.string(),
  chromium: z.string(),
  /** Whether Chromium's own was on, and if not, why. */
  sandbox: z.string().optional(),
  pronghorn: z.string(),
  /** Of the program's file: versions do not tell two builds apart. */
  pronghornSha256: z.string(),
  lab: z.string(),
  /** Of the lab's own program files. Absent in campaigns of before it was told. */
  labSha256: z.string().optional(),
  tcpCongestionDefault: z.string(),
  tcpCongestionAvailable: z.string(),
  /** The largest buffers that the kernel gives a socket that asks, as those of QUIC do, in bytes. */
  udpBufferMax: z.string().optional(),
});

const campaign = z.object({
  schema: z.literal(2),
  name: z.string(),
  seed: z.number(),
  blocks: z.object({ min: z.number(), max: z.number(), intervalPercent: z.number().optional() }),
  timeoutSeconds: z.number(),
  /** Whether each load was watched (NetLog, pictures), not only the rehearsal. */
  watched: z.boolean(),
  status: z.enum(['running', 'finished', 'interrupted']),
  /** From when to when it ran; more than one if it was interrupted and resumed. */
  sittings: z
    .array(
      z.object({
        startedAt: z.string(),
        finishedAt: z.string().optional(),
        /** Whether other campaigns could measure on the machine at the same time. */
        sharedMachine: z.literal(true).optional(),
        /** Where it is not the one below. */
        environment: environment.optional(),
      }),
    )
    .min(1),
  plan: z.object({ file: z.string(), sha256: z.string(), text: z.string() }),
  pages: z.array(
    z.object({
      name: z.string(),
      /** Of a page that was loaded where it is. */
      url: z.string().optional(),
      /** Those that count for a complete load. */
      requests: z.number().optional(),
      /** Whether a recorded server's think times were imitated. */
      thinkTimes: z.boolean().optional(),
      /** Where those come from. */
      thinkTimeCounts: z
        .object({ counted: z.number(), estimated: z.number(), leftOut: z.number(), untold: z.number() })
        .optional(),
      /** Of a recording, those that do not. */
      uncounted: z.number().optional(),
      bytes: z.number().optional(),
      /** Of its manifest or recording. */
      sha256: z.string().optional(),
      /** Over all files of it; absent of campaigns of before it was told, and of a page that is loaded where it is. */
      filesSha256: z.string().optional(),
    }),
  ),
  profiles: z.array(
    z.object({
      name: z.string(),
      sha256: z.string(),
      text: z.string(),
      /** Left out of it. */
      jitter: z.literal(false).optional(),
    }),
  ),
  servers: z.array(
    z.object({
      name: z.string(),
      args: z.array(z.string()),
      command: z.string().optional(),
      reference: z.enum(REFERENCES).optional(),
      optional: z.literal(true).optional(),
      /** Of a reference server. */
      version: z.string().optional(),
    }),
  ),
  arms: z.array(
    z.object({
      name: z.string(),
      protocol: z.enum(PROTOCOLS),
      congestion: z.enum(CONGESTION_CONTROLS),
      visit: z.enum(VISITS),
      initialWindow: z.number().optional(),
      slowStartAfterIdle: z.literal(true).optional(),
      discovery: z.enum(DISCOVERIES).optional(),
      server: z.string(),
      comparedWith: z.string().nullable().optional(),
      repeats: z.string().optional(),
    }),
  ),
  baseline: z.string(),
  /** Arms of the plan that this machine has no server for, with the reason. */
  leftOut: z.array(z.object({ arm: z.string(), reason: z.string() })).optional(),
  /** Absent of campaigns of before there was a choice: a cold one. */
  browser: z.enum(BROWSERS).optional(),
  certificate: z.enum(CERTIFICATES).optional(),
  failIf: z.array(z.string()),
  environment,
});

/** What a campaign was: its plan, seed and environment. Written at the start, and again with its end. */
export type Campaign = z.infer<typeof campaign>;
export type Environment = z.infer<typeof environment>;

/** Whether its pages were loaded where they are, over the machine's own network. */
export function isLive({ pages }: Pick<Campaign, 'pages'>): boolean {
  return pages.some(({ url }) => url !== undefined);
}

/** Writes `campaign.json` into the output folder, at once. */
export function writeCampaign(folder: string, value: Campaign): void {
  writeAtOnce(join(folder, CAMPAIGN), `${JSON.stringify(value, undefined, 2)}\n`);
}

/** Reads the `campaign.json` of an output folder. */
export function readCampaign(folder: string): Campaign {
  const path = join(folder, CAMPAIGN);
  const hint = 'name the output folder of a campaign';
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    throw new LabError(ExitCode.InputMissing, `${folder} has no ${CAMPAIGN}`, hint);
  }
  try {
    return campaign.parse(JSON.parse(text));
  } catch {
    throw new LabError(ExitCode.Malformed, `${path} is not a campaign's description`, hint);
  }
}

/** Replaces a file in one step, so that a reader sees the old or the new one. */
export function writeAtOnce(path: string, text: string): void {
  const partial = `${path}.partial`;
  try {
    writingTo(path, () => {
      writeFileSync(partial, text);
      renameSync(partial, path);
    });
  } catch (thrown) {
    // On a disk that is full each block counts.
    rmSync(partial, { force: true });
    throw thrown;
  }
}
