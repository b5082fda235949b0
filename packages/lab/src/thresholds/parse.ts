/**
 * Thresholds for CI systems: conditions under which a campaign counts as failed.
 *
 *     ["surely"] FIGURE ("<" | "<=" | ">" | ">=") LIMIT ["on" PROFILE ["/" PAGE]]
 *     FIGURE = ARM "." [("load" | "firstByte" | "lcp") "."] ("median" | "p90" | "p99" | "mean" | "completed")
 *     LIMIT  = NUMBER ("s" | "ms" | "%")  |  [NUMBER "*"] FIGURE
 */

import { METRICS, type Metric } from '../compare/compare-campaign.js';
import { ExitCode, LabError } from '../io/errors.js';
import { suggestion } from '../io/toml-file.js';

export const STATISTICS = ['median', 'p90', 'p99', 'mean', 'completed'] as const;
export type Statistic = (typeof STATISTICS)[number];

/** A figure of one arm: what a cell of the table shows. */
export interface ArmFigure {
  readonly arm: string;
  readonly metric: Metric;
  readonly statistic: Statistic;
  /** Column in the text, from 1. */
  readonly column: number;
}

export type Limit =
  /** Seconds, or a share of 1 for `completed`. */
  | { readonly kind: 'constant'; readonly value: number }
  | { readonly kind: 'figure'; readonly factor: number; readonly figure: ArmFigure };

export const COMPARATORS = ['<=', '>=', '<', '>'] as const;
export type Comparator = (typeof COMPARATORS)[number];

/** A condition under which the campaign fails. */
export interface Threshold {
  readonly text: string;
  readonly origin: Origin;
  /** Whether the whole 95 % interval has to violate the limit, not only the figure. */
  readonly surely: boolean;
  readonly figure: ArmFigure;
  readonly comparator: Comparator;
  readonly limit: Limit;
  /** Undefined for all profiles, each judged separately. */
  readonly place:
    | { readonly profile: string; readonly page: string | undefined; readonly column: number }
    | undefined;
}

/** Where a threshold was written, for error messages. */
export interface Origin {
  readonly name: string;
  readonly exitCode: ExitCode;
}

export const COMMAND_LINE: Origin = { name: '--fail-if', exitCode: ExitCode.Usage };

/** Names in a campaign to which a threshold can refer. */
export interface Named {
  readonly arms: readonly { readonly name: string }[];
  readonly profiles: readonly { readonly name: string }[];
  readonly pages?: readonly { readonly name: string }[];
}

/** Parses a threshold; errors name the column and what is expected there. */
export function parseThreshold(text: string, origin = COMMAND_LINE): Threshold {
  return new Parser(text, origin).threshold();
}

/** Throws if a threshold names an arm, profile or page that is not in the campaign. */
export function requireNamed(threshold: Threshold, { arms, profiles, pages = [] }: Named): void {
  const { text, origin, figure, limit, place } = threshold;
  const require = (
    what: string,
    given: string,
    known: readonly { name: string }[],
    column: number,
  ): void => {
    const names = known.map(({ name }) => name);
    if (names.includes(given)) return;
    const hint = names.length === 0 ? undefined : suggestion(given, names);
    throw new LabError(origin.exitCode, at(text, origin, column, `unknown ${what} ${given}`), hint);
  };
  for (const { arm, column } of limit.kind === 'figure' ? [figure, limit.figure] : [figure]) {
    require('arm', arm, arms, column);
  }
  if (place === undefined) return;
  require('profile', place.profile, profiles, place.column);
  if (place.page !== undefined) require('page', place.page, pages, place.column);
}

const NAME = /[A-Za-z0-9][A-Za-z0-9._-]*/y;
const NUMBER = /(\d+(?:\.\d+)?)\s*(\*|%|ms(?![A-Za-z0-9._-])|s(?![A-Za-z0-9._-]))/y;

class Parser {
  #at = 0;

  constructor(
    readonly text: string,
    readonly origin: Origin,
  ) {}

  threshold(): Threshold {
    const surely = this.#take(/surely(?=\s)/y) !== undefined;
    const figure = this.#figure();
    const comparator = this.#take(/<=|>=|<|>/y)?.[0] as Comparator | undefined;
    if (comparator === undefined) this.#fail('expected <, <=, > or >=');
    const limit = this.#limit(figure, surely);
    const place = this.#place();
    this.#space();
    if (this.#at < this.text.length) {
      this.#fail(place === undefined ? 'expected `on PROFILE` or the end' : 'expected the end');
    }
    return { text: this.text, origin: this.origin, surely, figure, comparator, limit, place };
  }

  /** Parses from the right: names of arms may contain dots. */
  #figure(): ArmFigure {
    this.#space();
    const column = this.#at + 1;
    const name = this.#take(NAME)?.[0];
    if (name === undefined)
      this.#fail('expected a figure of an arm, such as h3.median or h2.firstByte.p90');
    const parts = name.split('.');
    const statistic = parts.pop() ?? '';
    if (parts.length === 0)
      this.#fail(`expected a figure after the arm, such as ${name}.median`, column);
    if (!isOneOf(STATISTICS, statistic)) {
      const start = column + name.length - statistic.length;
      this.#fail(
        statistic === '' ? 'missing figure' : `unknown figure ${statistic}`,
        start,
        suggestion(statistic, STATISTICS),
      );
    }
    const time = parts.length > 1 ? parts.at(-1) : undefined;
    const metric = time !== undefined && isOneOf(METRICS, time) ? time : undefined;
    if (metric !== undefined) parts.pop();
    if (statistic === 'completed' && metric !== undefined && metric !== 'load') {
      this.#fail('`completed` counts loads and takes no time', column);
    }
    return { arm: parts.join('.'), metric: metric ?? 'load', statistic, column };
  }

  #limit(figure: ArmFigure, surely: boolean): Limit {
    this.#space();
    const column = this.#at + 1;
    const share = figure.statistic === 'completed';
    const [, digits, unit] = this.#take(NUMBER) ?? [];
    if (digits !== undefined && unit !== '*') {
      if ((unit === '%') !== share)
        this.#fail(share ? '`completed` is a share: expected %' : 'a time needs s or ms', column);
      return {
        kind: 'constant',
        value: Number(digits) / (unit === 'ms' ? 1000 : unit === '%' ? 100 : 1),
      };
    }
    if (digits === undefined && this.#peek(/\d+(\.\d+)?(?![A-Za-z0-9._-])/y)) {
      this.#fail('a number needs s, ms or % after it, or * and a figure', column);
    }
    const other = this.#figure();
    if ((other.statistic === 'completed') !== share)
      this.#fail('a share and a time cannot be compared', other.column);
    if (share && surely)
      this.#fail('`surely` compares a share only with a percentage', other.column);
    return { kind: 'figure', factor: digits === undefined ? 1 : Number(digits), figure: other };
  }

  #place(): Threshold['place'] {
    if (this.#take(/on(?=\s|$)/y) === undefined) return undefined;
    this.#space();
    const column = this.#at + 1;
    const profile = this.#take(NAME)?.[0];
    if (profile === undefined) this.#fail('expected the name of a profile');
    if (this.#take(/\//y) === undefined) return { profile, page: undefined, column };
    const page = this.#take(NAME)?.[0];
    if (page === undefined) this.#fail('expected the name of a page');
    return { profile, page, column };
  }

  #space(): void {
    while (/\s/.test(this.text.charAt(this.#at))) this.#at += 1;
  }

  #peek(pattern: RegExp): RegExpExecArray | undefined {
    this.#space();
    pattern.lastIndex = this.#at;
    return pattern.exec(this.text) ?? undefined;
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    const found = this.#peek(pattern);
    this.#at += found?.[0].length ?? 0;
    return found;
  }

  #fail(message: string, column = this.#at + 1, hint?: string): never {
    throw new LabError(this.origin.exitCode, at(this.text, this.origin, column, message), hint);
  }
}

function at(text: string, { name }: Origin, column: number, message: string): string {
  return `${name} '${text}', column ${column}: ${message}`;
}

function isOneOf<const T extends readonly string[]>(names: T, given: string): given is T[number] {
  return names.includes(given);
}
