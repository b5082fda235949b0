import {
  appendFileSync,
  closeSync,
  createReadStream,
  fstatSync,
  openSync,
  readSync,
  statSync,
  truncateSync,
} from 'node:fs';
import { createInterface } from 'node:readline';
import { z } from 'zod';
import { AnsweredProtocols, warmthOf } from '../run/cold-servers.js';
import { writingTo } from '../io/disk.js';
import { ExitCode, LabError, messageOf, systemCode } from '../io/errors.js';
import { faultsOfRound, isOfRound } from '../campaign/rounds.js';
import { SAMPLE_SCHEMA, type Sample } from './sample.js';

export const SAMPLES = 'samples.jsonl';

/** Fields that a sample must have. The rest is as this program wrote it. */
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

/** Appends a sample as a whole line; if the disk is full, removes the written part again. */
export function appendSample(path: string, sample: Sample): void {
  const before = statSync(path).size;
  try {
    writingTo(path, () => {
      appendFileSync(path, `${JSON.stringify(sample)}\n`);
    });
  } catch (thrown) {
    takeBack(path, before);
    throw thrown;
  }
}

function takeBack(path: string, size: number): void {
  try {
    truncateSync(path, size);
  } catch {
    // Readers skip half a line at the end.
  }
}

/**
 * Reads samples one round at a time: a line has all timings of a load, and a campaign may have
 * thousands of lines. Adds what is known only at the end of a round or of the campaign and is in no
 * line of the file: whether the machine was starved or the link late in a round, and over which
 * protocols a server answers at all.
 */
export async function* readSamples(path: string): AsyncGenerator<Sample> {
  let answered: AnsweredProtocols | undefined;
  let round: Sample[] = [];
  for await (const sample of readSamplesAsWritten(path)) {
    if (round[0] !== undefined && !isOfRound(sample, round[0])) {
      yield* judged(round, answered);
      round = [];
    }
    if (sample.warmUps?.some(({ ok }) => !ok)) answered ??= await readAnswered(path);
    round.push(sample);
  }
  yield* judged(round, answered);
}

async function readAnswered(path: string): Promise<AnsweredProtocols> {
  const answered = new AnsweredProtocols();
  for await (const sample of readSamplesAsWritten(path)) answered.add(warmthOf(sample));
  return answered;
}

function judged(round: readonly Sample[], answered: AnsweredProtocols | undefined): Sample[] {
  const faults = faultsOfRound(round);
  return round.map((sample) => {
    const cold = answered?.whyCold(warmthOf(sample));
    const isNew = cold !== undefined && !sample.invalidReasons.includes(cold);
    const own = isNew ? [...sample.invalidReasons, cold] : sample.invalidReasons;
    const invalidReasons = [...own, ...faults];
    if (invalidReasons.length === 0) return sample;
    const isRoundOnly = own.length === 0;
    return { ...sample, valid: false, invalidReasons, ...(isRoundOnly && { isRoundOnly }) };
  });
}

/**
 * Reads samples one at a time, as the loads wrote them. Half a line at the end, from a killed
 * process or a full disk, is ignored; anywhere else it is an error.
 */
export async function* readSamplesAsWritten(path: string): AsyncGenerator<Sample> {
  const lines = createInterface({ input: createReadStream(path, 'utf8'), crlfDelay: Infinity });
  let number = 0;
  let broken: LabError | undefined;
  try {
    for await (const line of lines) {
      number += 1;
      if (line.trim() === '') continue;
      if (broken !== undefined) throw broken;
      const sample = parseSample(line, path, number);
      if (sample instanceof LabError) broken = sample;
      else yield sample;
    }
    if (broken !== undefined) passOver(path, broken);
  } catch (thrown) {
    if (systemCode(thrown) === undefined) throw thrown;
    throw new LabError(
      ExitCode.InputMissing,
      `cannot read the samples ${path}: ${messageOf(thrown)}`,
      'name the output folder of a campaign',
    );
  }
}

const passedOver = new Set<string>();

/** A last line with a line end is not an incomplete one. */
function passOver(path: string, broken: LabError): void {
  const file = openSync(path, 'r');
  const last = Buffer.alloc(1);
  try {
    readSync(file, last, 0, 1, fstatSync(file).size - 1);
  } finally {
    closeSync(file);
  }
  if (last[0] === 0x0a) throw broken;
  if (passedOver.has(path)) return;
  passedOver.add(path);
  process.stderr.write(`warning: the last line of ${path} is incomplete; its load is ignored\n`);
}

function parseSample(line: string, path: string, number: number): Sample | LabError {
  try {
    const raw: unknown = JSON.parse(line);
    essential.parse(raw);
    return raw as Sample;
  } catch {
    return new LabError(
      ExitCode.Malformed,
      `${path}, line ${number} is not a valid sample of schema ${SAMPLE_SCHEMA}`,
      'remove the line, or use the version of pronghorn-lab that wrote it',
    );
  }
}
