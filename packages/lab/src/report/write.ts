import { join } from 'node:path';
import { readCampaign, writeAtOnce } from '../campaign-file.js';
import { collectResults, isComparable, type Results } from '../results.js';
import { readSamples, SAMPLES } from '../samples-file.js';
import { markdownTable, textTable } from '../table.js';
import { reportDocument } from './document.js';
import { timelineIfReadable } from '../trace/timeline.js';
import type { ReportedLoad } from './timeline.js';

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
  const results = await collectResults(campaign, readSamples(join(folder, SAMPLES)));
  const table = textTable(campaign, results);
  writeAtOnce(join(folder, 'table.txt'), table);
  writeAtOnce(join(folder, 'table.md'), markdownTable(campaign, results));
  writeAtOnce(join(folder, COMPARISONS), `${JSON.stringify(results.comparisons, infiniteAsText, 2)}\n`);
  writeAtOnce(join(folder, REPORT), reportDocument(campaign, results, await drawnLoads(folder, results)));
  return { results, table, comparable: isComparable(results) };
}

function infiniteAsText(_key: string, value: unknown): unknown {
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}

/** A second pass for the few loads that are drawn, so that the timings of the others are never held. */
async function drawnLoads(folder: string, results: Results): Promise<Map<number, ReportedLoad>> {
  const medians = results.cells.flatMap(({ medianLoad }) => medianLoad ?? []);
  const watched = results.cells.flatMap(({ rehearsals }) => rehearsals.map(({ load }) => load));
  const wanted = new Set([...medians, ...watched]);
  const found = new Map<number, ReportedLoad>();
  for await (const { load, arm, browser, labels = [], traces } of readSamples(join(folder, SAMPLES))) {
    if (!wanted.has(load) || browser === undefined) continue;
    const timeline = traces === undefined ? undefined : await timelineIfReadable(join(folder, traces), browser);
    // A timeline without a packet is a waterfall.
    found.set(load, { load, arm, browser, labels, timeline: timeline?.packets.length ? timeline : undefined });
  }
  return found;
}
