import { join } from 'node:path';
import { readCampaign, writeAtOnce } from '../campaign-file.js';
import { collectResults, isComparable, type Results } from '../results.js';
import { readSamples, SAMPLES } from '../samples-file.js';
import { markdownTable, textTable } from '../table.js';
import { reportDocument } from './document.js';
import type { WaterfallLoad } from './waterfall.js';

export const REPORT = 'report.html';

/** Makes `table.txt`, `table.md` and `report.html` of an output folder from its samples, and gives the table. */
export async function writeReports(folder: string): Promise<{ table: string; comparable: boolean }> {
  const campaign = readCampaign(folder);
  const samples = join(folder, SAMPLES);
  const results = await collectResults(campaign, readSamples(samples));
  const table = textTable(campaign, results);
  writeAtOnce(join(folder, 'table.txt'), table);
  writeAtOnce(join(folder, 'table.md'), markdownTable(campaign, results));
  writeAtOnce(join(folder, REPORT), reportDocument(campaign, results, await medianLoads(samples, results)));
  return { table, comparable: isComparable(results) };
}

/** A second pass for the timings of the few loads that are drawn, so that those of the others are never held. */
async function medianLoads(samples: string, results: Results): Promise<Map<number, WaterfallLoad>> {
  const wanted = new Set(results.cells.map(({ medianLoad }) => medianLoad));
  const found = new Map<number, WaterfallLoad>();
  for await (const { load, arm, browser } of readSamples(samples)) {
    if (wanted.has(load) && browser) found.set(load, { load, arm, browser });
  }
  return found;
}
