import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeAtOnce } from '../campaign-file.js';
import { conformanceSchema, type Conformance } from './conformance.js';

export const CONFORMANCE = 'conformance.json';

/** Writes a check as far as it has come. */
export function writeConformance(folder: string, so: Conformance): void {
  writeAtOnce(join(folder, CONFORMANCE), `${JSON.stringify(so, undefined, 2)}\n`);
}

/** The check in a folder, or undefined if there is none that can be read. */
export function readConformance(folder: string): Conformance | undefined {
  try {
    return conformanceSchema.parse(JSON.parse(readFileSync(join(folder, CONFORMANCE), 'utf8')));
  } catch {
    return undefined;
  }
}
