import { ExitCode, LabError, messageOf } from '../io/errors.js';
import { readLines } from './read-lines.js';

/** The fields of a row by the names of their columns. */
export type Row<Column extends string> = Readonly<Record<Column, string>>;

/**
 * Reads a CSV file of plain fields (no quotes) row by row, by the names in its first line. Columns
 * that are not requested are ignored.
 *
 * An incomplete last line, from a killed writer, is ignored. Any other row that has too few fields
 * or for which `parse` returns undefined is an error that names its line.
 */
export async function readCsv<Column extends string, T>(
  path: string,
  columns: readonly Column[],
  parse: (row: Row<Column>) => T | undefined,
): Promise<T[]> {
  const rows: T[] = [];
  let places: ReadonlyMap<Column, number> | undefined;
  let number = 0;
  let refused: number | undefined;
  try {
    for await (const line of readLines(path)) {
      number += 1;
      if (refused !== undefined) throw malformed(path, `invalid line ${refused}`);
      if (places === undefined) {
        places = columnIndexes(path, line, columns);
        continue;
      }
      const parsed = parseLine(line, places, parse);
      if (parsed === undefined) refused = number;
      else rows.push(parsed);
    }
  } catch (thrown) {
    if (thrown instanceof LabError) throw thrown;
    throw new LabError(ExitCode.InputMissing, `cannot read ${path}: ${messageOf(thrown)}`);
  }
  return rows;
}

function columnIndexes<Column extends string>(
  path: string,
  header: string,
  columns: readonly Column[],
): ReadonlyMap<Column, number> {
  const names = header.split(',');
  return new Map(
    columns.map((column) => {
      const place = names.indexOf(column);
      if (place < 0) throw malformed(path, `missing column ${column}`);
      return [column, place];
    }),
  );
}

function parseLine<Column extends string, T>(
  line: string,
  places: ReadonlyMap<Column, number>,
  parse: (row: Row<Column>) => T | undefined,
): T | undefined {
  const fields = line.split(',');
  const row: Partial<Record<Column, string>> = {};
  for (const [column, place] of places) {
    const field = fields[place];
    if (field === undefined) return undefined;
    row[column] = field;
  }
  return parse(row as Row<Column>);
}

function malformed(path: string, what: string): LabError {
  return new LabError(
    ExitCode.Malformed,
    `${path}: ${what}`,
    'check that this version of `pronghorn link` wrote it',
  );
}

/** Parses a decimal number without a fraction; undefined for anything else. */
export function integer(text: string): number | undefined {
  return /^-?\d+$/.test(text) ? Number(text) : undefined;
}

/** Parses like {@link integer}; an empty field is null. */
export function optionalInteger(text: string): number | null | undefined {
  return text === '' ? null : integer(text);
}
