import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ExitCode, LabError } from './errors.js';
import { CONGESTION_CONTROLS, PROTOCOLS } from './plan.js';

export const CAMPAIGN = 'campaign.json';

const campaign = z.object({
  schema: z.literal(1),
  name: z.string(),
  seed: z.number(),
  blocks: z.number(),
  timeoutSeconds: z.number(),
  /** Whether each load wrote a NetLog, not only the rehearsal. */
  netLog: z.boolean(),
  status: z.enum(['running', 'finished', 'interrupted']),
  startedAt: z.string(),
  finishedAt: z.string().optional(),
  plan: z.object({ file: z.string(), sha256: z.string(), text: z.string() }),
  page: z.object({
    name: z.string(),
    requests: z.number(),
    bytes: z.number().optional(),
    sha256: z.string().optional(),
  }),
  profiles: z.array(z.object({ name: z.string(), sha256: z.string(), text: z.string() })),
  arms: z.array(z.object({ name: z.string(), protocol: z.enum(PROTOCOLS), congestion: z.enum(CONGESTION_CONTROLS) })),
  environment: z.object({
    system: z.string(),
    cpu: z.string(),
    cpus: z.number(),
    memoryMebibytes: z.number(),
    node: z.string(),
    chromium: z.string(),
    pronghorn: z.string(),
    lab: z.string(),
    tcpCongestionDefault: z.string(),
    tcpCongestionAvailable: z.string(),
  }),
});

/** What a campaign was: its plan, seed and environment. Written at the start, and again with its end. */
export type Campaign = z.infer<typeof campaign>;

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
  writeFileSync(`${path}.partial`, text);
  renameSync(`${path}.partial`, path);
}
