import { join } from 'node:path';
import { usePerCell } from '../bound.js';
import { readCampaign, writeAtOnce } from '../campaign-file.js';
import type { Sample } from '../sample.js';
import { readSamples, SAMPLES } from '../samples-file.js';
import { REHEARSAL } from '../schedule.js';
import { ExitCode, LabError } from '../errors.js';
import { readCriteria } from './criteria-file.js';
import { evaluate, Loads, type Reproduction } from './evaluate.js';
import { reproductionMarkdown, type Told } from './text.js';

export const REPRODUCTION = 'reproduction.md';
const REPRODUCTION_DATA = 'reproduction.json';

/** Judges the samples of a folder by the criteria that lie there, wherever the campaign stands. */
export async function readReproduction(folder: string): Promise<Told> {
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
    const message = `the criteria in ${folder} were written ${criteria.writtenAt}, after the first load (${first})`;
    throw new LabError(ExitCode.Malformed, message, 'criteria have to be there first: run it again with another --out');
  }
  const use = await usePerCell(readSamples(join(folder, SAMPLES)), campaign.environment.cpus);
  return { campaign, criteria, reproduction, blocks, roundsLeftOut: leftOut.size, use };
}

/** Writes `reproduction.md` and `reproduction.json`, and gives the text of the first. */
export async function writeReproduction(folder: string): Promise<string> {
  const told = await readReproduction(folder);
  const markdown = reproductionMarkdown(told);
  writeAtOnce(join(folder, REPRODUCTION), markdown);
  writeAtOnce(join(folder, REPRODUCTION_DATA), `${JSON.stringify(asData(told), undefined, 2)}\n`);
  return markdown;
}

function asData({ campaign, criteria, reproduction, blocks }: Told): unknown {
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

function rowAsData({ row, figures, valid, completed, invalid }: Reproduction['rows'][number]): object {
  const measured = figures && Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, finite(value)]));
  return { ...row, published: row.figures, figures: measured, valid, completed, invalid };
}

/** JSON has no infinity: null stands for a load that did not complete. */
function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
