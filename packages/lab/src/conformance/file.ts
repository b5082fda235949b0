import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeAtOnce } from '../campaign/campaign-file.js';
import { conformanceSchema, type Conformance } from './conformance.js';

export const CONFORMANCE = 'conformance.json';

/** Writes the current state of a check. */
export function writeConformance(folder: string, so: Conformance): void {
  writeAtOnce(join(folder, CONFORMANCE), `${JSON.stringify(so, undefined, 2)}\n`);
}

/** Reads the check in a folder; undefined if there is none or it cannot be read. */
export function readConformance(folder: string): Conformance | undefined {
  try {
    return conformanceSchema.parse(JSON.parse(readFileSync(join(folder, CONFORMANCE), 'utf8')));
  } catch {
    return undefined;
  }
}
