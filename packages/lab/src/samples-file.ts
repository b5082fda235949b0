import { appendFileSync, createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from './errors.js';
import { SAMPLE_SCHEMA, type Sample } from './sample.js';

export const SAMPLES = 'samples.jsonl';

/** The fields without which a line is no sample. The rest is as this program wrote it. */
const essential = z.object({
  schema: z.literal(SAMPLE_SCHEMA),
  load: z.int(),
  profile: z.string(),
  block: z.int(),
  arm: z.string(),
  outcome: z.enum(['completed', 'incomplete', 'timeout', 'failed', 'not-run']),
  valid: z.boolean(),
  invalidReasons: z.array(z.string()),
  times: z.object({ load: z.number().optional() }),
});

/** Adds a sample in one write, so that a campaign that dies leaves whole lines only. */
export function appendSample(path: string, sample: Sample): void {
  try {
    appendFileSync(path, `${JSON.stringify(sample)}\n`);
  } catch (thrown) {
    const hint = 'make room, then run `pronghorn-lab report` for what was written until then';
    throw new LabError(ExitCode.CannotCreate, `cannot write to ${path}: ${messageOf(thrown)}`, hint);
  }
}

/** Reads samples one at a time: a line has all timings of a load, and a campaign may have thousands of them. */
export async function* readSamples(path: string): AsyncGenerator<Sample> {
  const lines = createInterface({ input: createReadStream(path, 'utf8'), crlfDelay: Infinity });
  let number = 0;
  try {
    for await (const line of lines) {
      number += 1;
      if (line.trim() !== '') yield parseSample(line, path, number);
    }
  } catch (thrown) {
    if (systemCode(thrown) === undefined) throw thrown;
    throw new LabError(
      ExitCode.InputMissing,
      `the samples ${path} cannot be read: ${messageOf(thrown)}`,
      'name the output folder of a campaign',
    );
  }
}

function parseSample(line: string, path: string, number: number): Sample {
  try {
    const raw: unknown = JSON.parse(line);
    essential.parse(raw);
    return raw as Sample;
  } catch {
    throw new LabError(
      ExitCode.Malformed,
      `${path}, line ${number} is not a sample of schema ${SAMPLE_SCHEMA}`,
      'remove the line, or use the version of pronghorn-lab that wrote it',
    );
  }
}
