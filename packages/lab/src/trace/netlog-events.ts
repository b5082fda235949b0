import { z } from 'zod';
import { readLines } from './read-lines.js';

/** One event of a Chromium NetLog. */
export interface NetLogEvent {
  readonly name: string;
  /**
   * Milliseconds since the reader's zero. Chromium truncates CLOCK_MONOTONIC to whole milliseconds:
   * the event happened in the millisecond that begins here.
   */
  readonly at: number;
  /** ID of the connection, request, job … that the event belongs to. */
  readonly source: number;
  readonly phase: 'begin' | 'end' | 'none';
  readonly params: Readonly<Record<string, unknown>>;
}

const head = z.object({
  constants: z.object({ logEventTypes: z.record(z.string(), z.number()) }),
});

const event = z.object({
  params: z.record(z.string(), z.unknown()).optional(),
  phase: z.number(),
  source: z.object({ id: z.number() }),
  time: z.coerce.number(),
  type: z.number(),
});

/** The event type is at the end of a line, so unwanted lines need not be parsed. */
const TYPE_AT_END = /"type":(\d+)\},?\s*$/;

/**
 * Reads the events with the given names from a NetLog, in order.
 *
 * A NetLog has its table of names on the first line and one event on each following line. So it is
 * read line by line, and a truncated one (from a killed browser) is read as far as it goes. A file
 * that is not a NetLog has no events.
 */
export async function* readNetLogEvents(
  path: string,
  names: readonly string[],
  zeroMs = 0,
): AsyncGenerator<NetLogEvent, void> {
  let wanted: ReadonlyMap<number, string> | undefined;
  for await (const line of readLines(path)) {
    if (wanted === undefined) {
      wanted = numbersOf(line, names);
      if (wanted.size === 0) return;
      continue;
    }
    const type = TYPE_AT_END.exec(line)?.[1];
    const name = type === undefined ? undefined : wanted.get(Number(type));
    if (name === undefined) continue;
    const parsed = parseEvent(line);
    if (parsed === undefined) continue;
    yield {
      name,
      at: parsed.time - zeroMs,
      source: parsed.source.id,
      phase: parsed.phase === 1 ? 'begin' : parsed.phase === 2 ? 'end' : 'none',
      params: parsed.params ?? {},
    };
  }
}

function numbersOf(firstLine: string, names: readonly string[]): ReadonlyMap<number, string> {
  try {
    const { constants } = head.parse(JSON.parse(firstLine.trim().replace(/,?$/, '}')));
    return new Map(
      names.flatMap((name) => {
        const number = constants.logEventTypes[name];
        return number === undefined ? [] : [[number, name]];
      }),
    );
  } catch {
    return new Map();
  }
}

function parseEvent(line: string): z.infer<typeof event> | undefined {
  try {
    return event.parse(JSON.parse(line.trim().replace(/,$/, '')));
  } catch {
    return undefined; // the incomplete last line, or an event of another shape
  }
}

/** Returns a number from an event's parameters. */
export function numberIn({ params }: NetLogEvent, key: string): number | undefined {
  const value = params[key];
  return typeof value === 'number' ? value : undefined;
}

/** Returns a string from an event's parameters. */
export function textIn({ params }: NetLogEvent, key: string): string | undefined {
  const value = params[key];
  return typeof value === 'string' ? value : undefined;
}

/** Returns the ID of the event's source dependency. */
export function dependencyIn({ params }: NetLogEvent): number | undefined {
  const value = params.source_dependency;
  if (typeof value !== 'object' || value === null || !('id' in value)) return undefined;
  return typeof value.id === 'number' ? value.id : undefined;
}
