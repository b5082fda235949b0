import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeAtOnce } from '../campaign-file.js';
import { ExitCode, LabError } from '../errors.js';
import { studySchema, VERDICT_RULES, type Study } from './criterion.js';

export const CRITERIA = 'criteria.json';

const criteriaFile = z.object({
  schema: z.literal('pronghorn-lab-criteria/1'),
  /** When, by the clock of the machine: before the first load. */
  writtenAt: z.iso.datetime(),
  /** Of `study` and `rules` as JSON: what must not change once a load has been made. */
  sha256: z.string(),
  rules: z.array(z.string()),
  study: studySchema,
});

/** What was stated before the run. */
export type CriteriaFile = z.infer<typeof criteriaFile>;

/** Writes a study's criteria into the output folder of a campaign that has not made a load yet. */
export function writeCriteria(folder: string, study: Study): void {
  const rules = [...VERDICT_RULES];
  const file: CriteriaFile = {
    schema: 'pronghorn-lab-criteria/1',
    writtenAt: new Date().toISOString(),
    sha256: hashOf(study, rules),
    rules,
    study,
  };
  writeAtOnce(join(folder, CRITERIA), `${JSON.stringify(file, undefined, 2)}\n`);
}

/** Whether a campaign's folder belongs to a study. */
export function hasCriteria(folder: string): boolean {
  return existsSync(join(folder, CRITERIA));
}

/** Reads the criteria of a folder. They are refused if they are not what their hash says. */
export function readCriteria(folder: string): CriteriaFile {
  const path = join(folder, CRITERIA);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    const hint = 'name the output folder of `pronghorn-lab reproduce`';
    throw new LabError(ExitCode.InputMissing, `${folder} has no ${CRITERIA}`, hint);
  }
  let file: CriteriaFile;
  try {
    file = criteriaFile.parse(JSON.parse(text));
  } catch {
    throw new LabError(ExitCode.Malformed, `${path} is no file of criteria`, 'put back the one that the run wrote');
  }
  if (file.sha256 !== hashOf(file.study, file.rules)) {
    const message = `${path} is not as it was written before the run: its hash is another one`;
    throw new LabError(ExitCode.Malformed, message, 'put back the one that the run wrote');
  }
  return file;
}

/** Refuses to go on with a campaign whose criteria are those of another study, or of another version of it. */
export function requireSameCriteria(folder: string, study: Study): void {
  const { study: before, sha256 } = readCriteria(folder);
  const hint = 'name another --out for a campaign of its own';
  if (before.name !== study.name) {
    throw new LabError(ExitCode.CannotCreate, `the campaign in ${folder} is of the study ${before.name}`, hint);
  }
  if (sha256 !== hashOf(study, [...VERDICT_RULES])) {
    const message = `the criteria in ${folder} are those of another version of pronghorn-lab`;
    throw new LabError(ExitCode.Malformed, message, 'go on with the version that began, or name another --out');
  }
}

function hashOf(study: Study, rules: readonly string[]): string {
  // Through the schema, so that the order of the keys is its own and not that of whoever wrote the object.
  const normal = JSON.stringify({ study: studySchema.parse(study), rules });
  return createHash('sha256').update(normal).digest('hex');
}
