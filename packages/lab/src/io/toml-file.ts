import { readFileSync } from 'node:fs';
import { distance } from 'fastest-levenshtein';
import { parse, TomlError } from 'smol-toml';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from './errors.js';

/** A TOML file that was read and checked. `text` is kept for the campaign's record. */
export interface TomlFile<T> {
  readonly path: string;
  readonly text: string;
  readonly value: T;
}

/**
 * Reads a TOML file into `schema`'s type, or throws one error that names the file, the key and the
 * allowed values.
 */
export function readTomlFile<T>(path: string, what: string, schema: z.ZodType<T>): TomlFile<T> {
  const text = readText(path, what);
  return { path, text, value: parseToml(text, path, what, schema) };
}

/** Parses and checks TOML text, like `readTomlFile` without the file. */
export function parseToml<T>(text: string, path: string, what: string, schema: z.ZodType<T>): T {
  const raw = parseSyntax(text, path, what);
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  // A misspelt key causes two issues, the unknown key and the missing one: the first suggests the
  // fix.
  const { issues } = result.error;
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0];
  throw new LabError(
    ExitCode.Malformed,
    `${what} ${path}: ${issue ? describe(issue, schema) : 'not valid'}`,
  );
}

/** Reads a text file that the user named. */
export function readText(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (systemCode(thrown) === 'ENOENT') {
      throw new LabError(ExitCode.InputMissing, `${what} ${path} does not exist`, 'check the path');
    }
    throw new LabError(ExitCode.InputMissing, `cannot read ${what} ${path}: ${messageOf(thrown)}`);
  }
}

function parseSyntax(text: string, path: string, what: string): unknown {
  try {
    return parse(text);
  } catch (thrown) {
    if (!(thrown instanceof TomlError)) throw thrown;
    const reason = (thrown.message.split('\n')[0] ?? '').replace(/^Invalid TOML document: /, '');
    throw new LabError(
      ExitCode.Malformed,
      `${what} ${path}, line ${thrown.line}, column ${thrown.column}: not valid TOML: ${reason}`,
    );
  }
}

/** Describes an issue with the file's key: `arms[1].protocol` must be one of …, not "h4". */
function describe(issue: z.core.$ZodIssue, schema: z.ZodType): string {
  const where = keyPath(issue.path);
  if (issue.code === 'unrecognized_keys') {
    const key = issue.keys[0] ?? '';
    const name = where === '' ? key : `${where}.${key}`;
    const known = keysAt(schema, issue.path);
    return `unknown key \`${name}\`; ${suggestion(key, known)}`;
  }
  return where === '' ? issue.message : `\`${where}\`: ${issue.message}`;
}

function keyPath(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? String(part) : `${text}.${String(part)}`;
  }, '');
}

/**
 * Suggests the nearest valid name if it is close enough to be a typing error, otherwise lists all
 * of them.
 */
export function suggestion(given: string, known: readonly string[]): string {
  const nearest = known
    .map((name) => ({ name, edits: distance(given.toLowerCase(), name) }))
    .sort((a, b) => a.edits - b.edits)[0];
  if (nearest && nearest.edits <= Math.max(2, Math.floor(given.length / 3)))
    return `did you mean \`${nearest.name}\`?`;
  return `valid: ${known.map((name) => `\`${name}\``).join(', ')}`;
}

/** Returns the keys that `schema` has at `path`. */
function keysAt(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let at: unknown = schema;
  for (const part of path) {
    at = unwrap(at);
    if (at instanceof z.ZodArray) at = at.element;
    else if (at instanceof z.ZodObject) at = (at.shape as Record<PropertyKey, unknown>)[part];
  }
  at = unwrap(at);
  return at instanceof z.ZodObject ? Object.keys(at.shape) : [];
}

function unwrap(schema: unknown): unknown {
  let at = schema;
  while (at instanceof z.ZodOptional || at instanceof z.ZodDefault || at instanceof z.ZodPipe) {
    at = at instanceof z.ZodPipe ? at.def.in : at.unwrap();
  }
  return at;
}

/** Field types whose messages state the allowed values. */
export const field = {
  text: (what: string) =>
    z
      .string({ error: missingOr(`must be a string: ${what}`) })
      .min(1, { error: `must not be empty (${what})` }),

  integer: (low: number, high: number, unit?: string) => {
    const what = unit === undefined ? 'whole number' : `whole number of ${unit}`;
    const error = missingOr(`must be a ${what} from ${low} to ${high}`);
    return z.int({ error }).min(low, { error }).max(high, { error });
  },

  choice: <const T extends readonly string[]>(names: T) =>
    z.enum(names, {
      error: (issue) => {
        const listed = names.map((name) => `"${name}"`).join(', ');
        if (issue.input === undefined) return `is missing; it is one of ${listed}`;
        const given = typeof issue.input === 'string' ? issue.input : undefined;
        const near = given === undefined ? '' : suggestion(given, names);
        const hint = near.startsWith('did you mean') ? `; ${near.replaceAll('`', '"')}` : '';
        return `must be one of ${listed}, not ${JSON.stringify(issue.input)}${hint}`;
      },
    }),
};

/** Returns an error message for a value of the wrong kind, and "is missing" for none. */
export function missingOr(text: string): (issue: { input?: unknown }) => string {
  return (issue) => (issue.input === undefined ? `is missing; it ${text}` : text);
}
