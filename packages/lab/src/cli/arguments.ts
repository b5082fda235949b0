import { parseArgs, type ParseArgsConfig } from 'node:util';
import { z } from 'zod';
import { ExitCode, LabError, messageOf } from '../io/errors.js';
import type { MachineUse } from '../campaign/lock.js';
import { MAX_SEED } from '../campaign/seed.js';
import { parseThreshold, type Threshold } from '../thresholds/parse.js';

export function parse(
  args: readonly string[],
  form: string,
  options: NonNullable<ParseArgsConfig['options']>,
): { positional: string; values: Record<string, unknown> } {
  const { positionals, values } = parseWords(args, options);
  const [positional, ...more] = positionals;
  if (positional === undefined || more.length > 0) throw usage(`usage: pronghorn-lab ${form}`);
  return { positional, values };
}

export function parseWords(
  args: readonly string[],
  options: NonNullable<ParseArgsConfig['options']>,
): { positionals: string[]; values: Record<string, unknown> } {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (thrown) {
    throw usage((messageOf(thrown).split('. ')[0] ?? '').replace(/^Unknown/, 'unknown'));
  }
}

export function parseSeed(given: string): number {
  const seed = /^\d+$/.test(given) ? Number(given) : NaN;
  if (!(seed <= MAX_SEED))
    throw usage(`--seed must be a whole number from 0 to ${MAX_SEED}, not ${given}`);
  return seed;
}

export function parseWhole(option: string, given: string, low: number, high: number): number {
  const value = /^\d+$/.test(given) ? Number(given) : Number.NaN;
  if (!(value >= low && value <= high)) {
    throw usage(`${option} must be a whole number from ${low} to ${high}, not ${given}`);
  }
  return value;
}

export function parseThresholds(given: unknown): Threshold[] {
  return strings(given).map((condition) => parseThreshold(condition));
}

export function strings(value: unknown): string[] {
  return z.array(z.string()).parse(value ?? []);
}

export function nonEmptyString(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

export function timestamp(): string {
  return new Date().toISOString().slice(0, 19).replaceAll(':', '').replace('T', '-');
}

/** Options of the commands that measure. */
export const MACHINE_OPTIONS = {
  wait: { type: 'boolean' },
  'share-machine': { type: 'boolean' },
} as const;

/**
 * Environment variable that stands for `--share-machine`, for all campaigns of a shell or CI
 * system.
 */
const SHARE_VARIABLE = 'PRONGHORN_LAB_SHARE_MACHINE';

export function machineUse(values: Record<string, unknown>): MachineUse {
  const shared = nonEmptyString(process.env[SHARE_VARIABLE]) ?? '0';
  if (!['0', '1'].includes(shared)) throw usage(`${SHARE_VARIABLE} must be 0 or 1, not ${shared}`);
  return { share: values['share-machine'] === true || shared === '1', wait: values.wait === true };
}

export function usage(message: string, hint = 'see pronghorn-lab --help'): LabError {
  return new LabError(ExitCode.Usage, message, hint);
}
