import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writingTo } from '../io/disk.js';
import { ExitCode, LabError } from '../io/errors.js';
import { CERTIFICATES } from '../run/certificate.js';
import {
  BROWSERS,
  CONGESTION_CONTROLS,
  DISCOVERIES,
  PROTOCOLS,
  REFERENCES,
  VISITS,
} from './plan.js';

export const CAMPAIGN = 'campaign.json';

const environment = z.object({
  system: z.string(),
  cpu: z.string(),
  cpus: z.number(),
  memoryMebibytes: z.number(),
  node: z.string(),
  chromium: z.string(),
  /** Whether Chromium's own sandbox was on, and if not, why. */
  sandbox: z.string().optional(),
  pronghorn: z.string(),
  /** Hash of the program's file: versions do not tell two builds apart. */
  pronghornSha256: z.string(),
  lab: z.string(),
  /** Hash of the lab's own program files. Absent in campaigns older than this field. */
  labSha256: z.string().optional(),
  tcpCongestionDefault: z.string(),
  tcpCongestionAvailable: z.string(),
  /** The kernel's largest buffers for sockets that ask for one, as QUIC's do, in bytes. */
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
  /** The campaign's runs with start and end; more than one if it was interrupted and resumed. */
  sittings: z
    .array(
      z.object({
        startedAt: z.string(),
        finishedAt: z.string().optional(),
        /** Whether other campaigns could measure on the machine at the same time. */
        sharedMachine: z.literal(true).optional(),
        /** The environment of this sitting, if it differs from the campaign's below. */
        environment: environment.optional(),
      }),
    )
    .min(1),
  plan: z.object({ file: z.string(), sha256: z.string(), text: z.string() }),
  pages: z.array(
    z.object({
      name: z.string(),
      /** URL of a page that is loaded from its own server. */
      url: z.string().optional(),
      /** Number of requests that count for a complete load. */
      requests: z.number().optional(),
      /** Whether a recorded server's think times were imitated. */
      thinkTimes: z.boolean().optional(),
      /** Where the think times come from. */
      thinkTimeCounts: z
        .object({
          counted: z.number(),
          estimated: z.number(),
          leftOut: z.number(),
          untold: z.number(),
        })
        .optional(),
      /** Number of a recording's requests that do not count. */
      uncounted: z.number().optional(),
      bytes: z.number().optional(),
      /** Hash of the page's manifest or recording. */
      sha256: z.string().optional(),
      /**
       * Hash over all files of the page. Absent in campaigns older than this field, and for a page
       * with a `url`.
       */
      filesSha256: z.string().optional(),
    }),
  ),
  profiles: z.array(
    z.object({
      name: z.string(),
      sha256: z.string(),
      text: z.string(),
      /** False if jitter was removed from the profile. */
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
      /** Version of a reference server. */
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
  /**
   * Arms of the plan that were skipped because this machine lacks their server, with the reason.
   */
  leftOut: z.array(z.object({ arm: z.string(), reason: z.string() })).optional(),
  /** Absent in campaigns older than this setting, which had a cold browser. */
  browser: z.enum(BROWSERS).optional(),
  certificate: z.enum(CERTIFICATES).optional(),
  failIf: z.array(z.string()),
  environment,
});

/** A campaign's plan, seed and environment. Written at the start, and again at the end. */
export type Campaign = z.infer<typeof campaign>;
export type Environment = z.infer<typeof environment>;

/**
 * Returns whether the campaign's pages were loaded from their own servers, over the machine's
 * network.
 */
export function isLive({ pages }: Pick<Campaign, 'pages'>): boolean {
  return pages.some(({ url }) => url !== undefined);
}

/** Writes `campaign.json` into the output folder atomically. */
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
    throw new LabError(ExitCode.Malformed, `${path} is not a valid campaign description`, hint);
  }
}

/** Replaces a file atomically: a reader sees the old or the new content. */
export function writeAtOnce(path: string, text: string): void {
  const partial = `${path}.partial`;
  try {
    writingTo(path, () => {
      writeFileSync(partial, text);
      renameSync(partial, path);
    });
  } catch (thrown) {
    // A full disk needs each block freed.
    rmSync(partial, { force: true });
    throw thrown;
  }
}
