import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LinkReport } from '../src/run/link-report.js';
import type { BrowserSide, Sample } from '../src/samples/sample.js';
import { packageFolder } from './places.js';

/** The output folder of a real campaign: one block of `fixtures/plan.toml`. */
export const recordedFolder = join(packageFolder, 'test/fixtures/campaign');

/** Returns its samples, fresh for each call so that a test may change them. */
export function recordedSamples(): Sample[] {
  const text = readFileSync(join(recordedFolder, 'samples.jsonl'), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Sample);
}

export type Whole = Sample & { readonly browser: BrowserSide; readonly link: LinkReport };

/** Returns the recorded sample of an arm. */
export function recorded(arm: string): Whole {
  const sample = recordedSamples().find((each) => each.arm === arm && each.block === 1);
  if (sample?.browser === undefined || sample.link === undefined)
    throw new Error(`no whole sample of ${arm}`);
  return sample as Whole;
}

/** Removes `readonly` from `T` at every depth. */
export type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T;
