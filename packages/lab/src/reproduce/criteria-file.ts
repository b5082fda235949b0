import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { writeAtOnce } from '../campaign/campaign-file.js';
import { ExitCode, LabError } from '../io/errors.js';
import { studySchema, VERDICT_RULES, type Study } from './criterion.js';

export const CRITERIA = 'criteria.json';

const criteriaFile = z.object({
  schema: z.literal('pronghorn-lab-criteria/1'),
  /** When the file was written, by the machine's clock: before the first load. */
  writtenAt: z.iso.datetime(),
  /** Hash of `study` and `rules` as JSON, which must not change after the first load. */
  sha256: z.string(),
  rules: z.array(z.string()),
  study: studySchema,
});

/** The criteria as fixed before the run. */
export type CriteriaFile = z.infer<typeof criteriaFile>;

/** Writes a study's criteria into the output folder of a campaign before its first load. */
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

/** Returns whether a campaign's folder belongs to a study. */
export function hasCriteria(folder: string): boolean {
  return existsSync(join(folder, CRITERIA));
}

/** Reads the criteria of a folder. Refuses them if they do not match their hash. */
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
    throw new LabError(
      ExitCode.Malformed,
      `${path} is not a valid criteria file`,
      'restore the file that the run wrote',
    );
  }
  if (file.sha256 !== hashOf(file.study, file.rules)) {
    const message = `${path} was changed after the run had started: its hash does not match`;
    throw new LabError(ExitCode.Malformed, message, 'restore the file that the run wrote');
  }
  return file;
}

/**
 * Refuses to resume a campaign whose criteria are those of another study, or of another version of
 * it.
 */
export function requireSameCriteria(folder: string, study: Study): void {
  const { study: before, sha256 } = readCriteria(folder);
  const hint = 'use another --out for a new campaign';
  if (before.name !== study.name) {
    throw new LabError(
      ExitCode.CannotCreate,
      `the campaign in ${folder} belongs to the study ${before.name}`,
      hint,
    );
  }
  if (sha256 !== hashOf(study, [...VERDICT_RULES])) {
    const message = `the criteria in ${folder} were written by another version of pronghorn-lab`;
    throw new LabError(
      ExitCode.Malformed,
      message,
      'resume with that version, or use another --out',
    );
  }
}

function hashOf(study: Study, rules: readonly string[]): string {
  // Parsing with the schema gives the keys a fixed order, whatever the order in the object.
  const normal = JSON.stringify({ study: studySchema.parse(study), rules });
  return createHash('sha256').update(normal).digest('hex');
}
