import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readCampaign, writeAtOnce, type Campaign } from '../campaign/campaign-file.js';
import { collectResults, isComparable, type Results } from './results.js';
import { readSamples, SAMPLES } from '../samples/samples-file.js';
import { csvHead, csvLine, SAMPLES_CSV } from '../samples/samples-csv.js';
import { markdownTable, textTable } from './results-table.js';
import { usePerCell, useSection } from './bound.js';
import { readConformance } from '../conformance/file.js';
import { conformanceSection } from '../conformance/conformance-section.js';
import { hasCriteria } from '../reproduce/criteria-file.js';
import { reproductionSection } from '../reproduce/reproduction-section.js';
import { readReproduction } from '../reproduce/write-reproduction.js';
import { animatedSvg } from './animated-svg.js';
import { reportDocument } from './document.js';
import { timelineIfReadable } from '../trace/timeline.js';
import { PictureStore } from './pictures.js';
import { numbersOf, shownPlaces } from './shown-loads.js';
import { racesOf, type Race } from './side-by-side.js';
import type { ReportedLoad } from './timeline-picture.js';

export const REPORT = 'report.html';
/** Name of the folder with the animated pictures, one per profile and page. */
export const RACES = 'side-by-side';
/**
 * Name of the file with the comparisons as data. JSON has no infinite numbers: they are the strings
 * "Infinity" and "-Infinity".
 */
export const COMPARISONS = 'comparisons.json';

/** Reports made from an output folder's samples. */
export interface Reports {
  readonly results: Results;
  readonly table: string;
  readonly comparable: boolean;
}

/**
 * Makes the tables, the comparisons, `samples.csv`, the pictures and `report.html` of an output
 * folder from its samples.
 */
export async function writeReports(folder: string): Promise<Reports> {
  const campaign = readCampaign(folder);
  const results = await collectResults(campaign, readSamples(join(folder, SAMPLES)));
  const table = textTable(campaign, results);
  const pictures = new PictureStore(folder);
  const places = shownPlaces(results, pictures);
  const { loads, csv } = await secondPass(folder, results, numbersOf(places));
  writeAtOnce(join(folder, 'table.txt'), table);
  writeAtOnce(join(folder, 'table.md'), markdownTable(campaign, results));
  writeAtOnce(
    join(folder, COMPARISONS),
    `${JSON.stringify(results.comparisons, infiniteAsText, 2)}\n`,
  );
  writeAtOnce(join(folder, SAMPLES_CSV), csv);
  const races = racesOf(places, loads);
  const use = await usePerCell(readSamples(join(folder, SAMPLES)), campaign.environment.cpus);
  const conformance = readConformance(folder);
  const verdict = hasCriteria(folder)
    ? reproductionSection(await readReproduction(folder))
    : undefined;
  const bench = [conformance && conformanceSection(conformance), useSection(use)];
  const shown = { places, races, loads, pictures, verdict, bench };
  writeAtOnce(join(folder, REPORT), reportDocument(campaign, results, shown));
  writeRaces(folder, races, campaign, pictures);
  return { results, table, comparable: isComparable(results) };
}

function infiniteAsText(_key: string, value: unknown): unknown {
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}

/**
 * Writes each race as a separate file. Removes the races of an earlier report, since a profile or
 * page may be gone.
 */
function writeRaces(
  folder: string,
  races: readonly Race[],
  campaign: Campaign,
  pictures: PictureStore,
): void {
  const target = join(folder, RACES);
  mkdirSync(target, { recursive: true });
  for (const old of readdirSync(target).filter((name) => name.endsWith('.svg')))
    rmSync(join(target, old));
  for (const race of races) {
    const name = race.title.replace(/[^\w.]+/g, '-');
    writeAtOnce(join(target, `${name}.svg`), animatedSvg(race, campaign, pictures));
  }
}

/**
 * Reads the samples a second time for the few loads that are drawn, so that the timings of the
 * others are never kept in memory.
 */
async function secondPass(
  folder: string,
  results: Results,
  shown: readonly number[],
): Promise<{ loads: Map<number, ReportedLoad>; csv: string }> {
  const medians = results.cells.flatMap(({ medianLoad }) => medianLoad ?? []);
  const watched = results.cells.flatMap(({ rehearsals }) => rehearsals.map(({ load }) => load));
  const wanted = new Set([...medians, ...watched, ...shown]);
  const loads = new Map<number, ReportedLoad>();
  const lines = [csvHead()];
  for await (const sample of readSamples(join(folder, SAMPLES))) {
    lines.push(csvLine(sample));
    const { load, arm, browser, labels = [], traces } = sample;
    if (!wanted.has(load) || browser === undefined) continue;
    const timeline =
      traces === undefined ? undefined : await timelineIfReadable(join(folder, traces), browser);
    // A timeline without packets is shown as a waterfall.
    loads.set(load, {
      load,
      arm,
      browser,
      labels,
      timeline: timeline?.packets.length ? timeline : undefined,
    });
  }
  return { loads, csv: lines.join('') };
}
