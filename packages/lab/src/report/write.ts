import { join } from 'node:path';
import { readCampaign, writeAtOnce } from '../campaign-file.js';
import { collectResults, isComparable, type Results } from '../results.js';
import { readSamples, SAMPLES } from '../samples-file.js';
import { markdownTable, textTable } from '../table.js';
import { reportDocument } from './document.js';
import type { WaterfallLoad } from './waterfall.js';

export const REPORT = 'report.html';
/** The comparisons as data. JSON has no infinite numbers: they are the texts "Infinity" and "-Infinity". */
export const COMPARISONS = 'comparisons.json';

/** What was made of an output folder's samples. */
export interface Reports {
  readonly results: Results;
  readonly table: string;
  readonly comparable: boolean;
}

/** Makes the tables, the comparisons and `report.html` of an output folder from its samples. */
export async function writeReports(folder: string): Promise<Reports> {
  const campaign = readCampaign(folder);
  const samples = join(folder, SAMPLES);
  const results = await collectResults(campaign, readSamples(samples));
  const table = textTable(campaign, results);
  writeAtOnce(join(folder, 'table.txt'), table);
  writeAtOnce(join(folder, 'table.md'), markdownTable(campaign, results));
  writeAtOnce(join(folder, COMPARISONS), `${JSON.stringify(results.comparisons, infiniteAsText, 2)}\n`);
  writeAtOnce(join(folder, REPORT), reportDocument(campaign, results, await medianLoads(samples, results)));
  return { results, table, comparable: isComparable(results) };
}

function infiniteAsText(_key: string, value: unknown): unknown {
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
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
