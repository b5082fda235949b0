import { readFileSync } from 'node:fs';
import { distance } from 'fastest-levenshtein';
import { parse, TomlError } from 'smol-toml';
import { z } from 'zod';
import { ExitCode, LabError, messageOf, systemCode } from './errors.js';

/** A TOML file that was read and checked. `text` is kept for the record of a campaign. */
export interface TomlFile<T> {
  readonly path: string;
  readonly text: string;
  readonly value: T;
}

/** Reads a TOML file into `schema`'s type, or throws one error that names the file, the key and what is allowed. */
export function readTomlFile<T>(path: string, what: string, schema: z.ZodType<T>): TomlFile<T> {
  const text = readText(path, what);
  return { path, text, value: parseToml(text, path, what, schema) };
}

/** The checking half of `readTomlFile`, for text that is already here. */
export function parseToml<T>(text: string, path: string, what: string, schema: z.ZodType<T>): T {
  const raw = parseSyntax(text, path, what);
  const result = schema.safeParse(raw);
  if (result.success) return result.data;
  // A misspelt key makes two issues, itself and the key that is missing for it: the first says what to do.
  const { issues } = result.error;
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0];
  throw new LabError(ExitCode.Malformed, `${what} ${path}: ${issue ? describe(issue, schema) : 'not valid'}`);
}

/** Reads a text file that the user named. */
export function readText(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (thrown) {
    if (systemCode(thrown) === 'ENOENT') {
      throw new LabError(ExitCode.InputMissing, `${what} ${path} does not exist`, 'check the path');
    }
    throw new LabError(ExitCode.InputMissing, `${what} ${path} cannot be read: ${messageOf(thrown)}`);
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

/** Says what is wrong in the file's own words: `arms[1].protocol` must be one of …, not "h4". */
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

/** The nearest valid name when it is near enough to be a slip of the hand, else all of them. */
export function suggestion(given: string, known: readonly string[]): string {
  const nearest = known
    .map((name) => ({ name, edits: distance(given.toLowerCase(), name) }))
    .sort((a, b) => a.edits - b.edits)[0];
  if (nearest && nearest.edits <= Math.max(2, Math.floor(given.length / 3))) return `did you mean \`${nearest.name}\`?`;
  return `valid here: ${known.map((name) => `\`${name}\``).join(', ')}`;
}

/** The keys that `schema` knows at `path`. */
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

/** Field types with messages that say what is allowed. */
export const field = {
  text: (what: string) =>
    z.string({ error: missingOr(`must be text, ${what}`) }).min(1, { error: `must not be empty (${what})` }),

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

/** An error message for a value of the wrong kind, and "is missing" for none. */
export function missingOr(text: string): (issue: { input?: unknown }) => string {
  return (issue) => (issue.input === undefined ? `is missing; it ${text}` : text);
}
