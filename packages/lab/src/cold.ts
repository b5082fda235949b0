import type { Sample } from './sample.js';
import { wasAnsweredOver } from './validity.js';
import { coldInWords, type WarmProtocol } from './warm-up.js';

/** Of a load, what tells whether its server was warm. */
export interface Warmth {
  readonly server: string;
  /** Over what it answered, before the load or in it. */
  readonly answered: readonly WarmProtocol[];
  /** Over what it did before the load. */
  readonly warmed: readonly WarmProtocol[];
  /** Over which of the load's own protocols it was asked and did not answer before the load. */
  readonly silent: readonly WarmProtocol[];
}

type Told = Pick<Sample, 'server' | 'protocol' | 'warmUps' | 'browser'>;

export function warmthOf({ server, protocol: own, warmUps = [], browser }: Told): Warmth {
  const over = (isOk: boolean): WarmProtocol[] =>
    warmUps.filter(({ ok }) => ok === isOk).map(({ protocol }) => protocol);
  const inBrowser = over(false).filter((protocol) => browser !== undefined && wasAnsweredOver(protocol, browser));
  const silent = over(false).filter(
    (protocol) => protocol === own || (own === 'auto' && ['h2', 'h3'].includes(protocol)),
  );
  return { server, warmed: over(true), silent, answered: [...over(true), ...inBrowser] };
}

/**
 * Over what the servers of a campaign answer at all. Of a server that a plan brings nobody knows that beforehand: that it never answers
 * over a protocol is an outcome. If it ever did, a load before which it did not was made on a cold server, and is invalid whatever
 * became of it: otherwise those that fail would count, and those that complete would not.
 */
export class Answered {
  readonly #answered = new Map<string, Set<WarmProtocol>>();
  readonly #warmed = new Set<string>();

  add({ server, answered, warmed }: Warmth): void {
    this.#answered.set(server, new Set([...(this.#answered.get(server) ?? []), ...answered]));
    if (warmed.length > 0) this.#warmed.add(server);
  }

  /** Why a load says nothing. If nothing ever warms a server, all loads of it are alike, and the report says so. */
  whyCold({ server, silent }: Warmth): string | undefined {
    if (!this.#warmed.has(server)) return undefined;
    const cold = silent.filter((protocol) => this.#answered.get(server)?.has(protocol) === true);
    return cold.length === 0 ? undefined : coldInWords(cold);
  }
}
