import { join } from 'node:path';
import { usePerCell } from '../report/bound.js';
import { readCampaign, writeAtOnce } from '../campaign/campaign-file.js';
import type { Sample } from '../samples/sample.js';
import { readSamples, SAMPLES } from '../samples/samples-file.js';
import { REHEARSAL } from '../campaign/schedule.js';
import { ExitCode, LabError } from '../io/errors.js';
import { readCriteria } from './criteria-file.js';
import { evaluate, Loads, type Reproduction } from './evaluate.js';
import { reproductionMarkdown, type ReproductionData } from './reproduction-text.js';

export const REPRODUCTION = 'reproduction.md';
const REPRODUCTION_DATA = 'reproduction.json';

/** Judges the samples of a folder by its criteria, whatever the campaign's status. */
export async function readReproduction(folder: string): Promise<ReproductionData> {
  const criteria = readCriteria(folder);
  const campaign = readCampaign(folder);
  let blocks = 0;
  const leftOut = new Set<string>();
  let first: string | undefined;
  const watched = async function* (): AsyncGenerator<Sample> {
    for await (const sample of readSamples(join(folder, SAMPLES))) {
      blocks = Math.max(blocks, sample.block);
      first ??= sample.startedAt;
      if (sample.isRoundOnly && sample.block !== REHEARSAL)
        leftOut.add(`${sample.block} ${sample.profile} ${sample.page}`);
      yield sample;
    }
  };
  const reproduction = evaluate(criteria.study, campaign, await Loads.read(watched()));
  if (first !== undefined && first < criteria.writtenAt) {
    const message = `the criteria in ${folder} were written at ${criteria.writtenAt}, after the first load (${first})`;
    throw new LabError(
      ExitCode.Malformed,
      message,
      'criteria must precede the loads: run it again with another --out',
    );
  }
  const use = await usePerCell(readSamples(join(folder, SAMPLES)), campaign.environment.cpus);
  return { campaign, criteria, reproduction, blocks, roundsLeftOut: leftOut.size, use };
}

/** Writes `reproduction.md` and `reproduction.json`, and returns the text of the former. */
export async function writeReproduction(folder: string): Promise<string> {
  const told = await readReproduction(folder);
  const markdown = reproductionMarkdown(told);
  writeAtOnce(join(folder, REPRODUCTION), markdown);
  writeAtOnce(join(folder, REPRODUCTION_DATA), `${JSON.stringify(asData(told), undefined, 2)}\n`);
  return markdown;
}

function asData({ campaign, criteria, reproduction, blocks }: ReproductionData): unknown {
  return {
    schema: 'pronghorn-lab-reproduction/1',
    study: reproduction.study.name,
    criteriaSha256: criteria.sha256,
    status: campaign.status,
    blocks,
    control: reproduction.control,
    criteria: reproduction.criteria.map(({ criterion, blocks: own, effect, verdict }) => ({
      ...{ id: criterion.id, verdict, blocks: own },
      ...(effect && { value: finite(effect.value), ...intervalOf(effect) }),
    })),
    rows: reproduction.rows.map(rowAsData),
  };
}

function intervalOf({ interval }: NonNullable<Reproduction['criteria'][number]['effect']>): object {
  if (interval === undefined) return {};
  return { low: finite(interval.low), high: finite(interval.high), method: interval.method };
}

function rowAsData({
  row,
  figures,
  valid,
  completed,
  invalid,
}: Reproduction['rows'][number]): object {
  const measured =
    figures &&
    Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, finite(value)]));
  return { ...row, published: row.figures, figures: measured, valid, completed, invalid };
}

/** JSON has no infinity: null stands for a load that did not complete. */
function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
