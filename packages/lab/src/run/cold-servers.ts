import type { Sample } from '../samples/sample.js';
import { wasAnsweredOver } from '../samples/validity.js';
import { describeCold, type WarmProtocol } from './warm-up.js';

/** The part of a load that tells whether its server was warm. */
export interface Warmth {
  readonly server: string;
  /** Protocols over which the server answered, before the load or in it. */
  readonly answered: readonly WarmProtocol[];
  /** Protocols over which it answered before the load. */
  readonly warmed: readonly WarmProtocol[];
  /** The load's own protocols over which it was requested before the load but did not answer. */
  readonly silent: readonly WarmProtocol[];
}

type LoadAnswers = Pick<Sample, 'server' | 'protocol' | 'warmUps' | 'browser'>;

export function warmthOf({ server, protocol: own, warmUps = [], browser }: LoadAnswers): Warmth {
  const over = (isOk: boolean): WarmProtocol[] =>
    warmUps.filter(({ ok }) => ok === isOk).map(({ protocol }) => protocol);
  const inBrowser = over(false).filter(
    (protocol) => browser !== undefined && wasAnsweredOver(protocol, browser),
  );
  const silent = over(false).filter(
    (protocol) => protocol === own || (own === 'auto' && ['h2', 'h3'].includes(protocol)),
  );
  return { server, warmed: over(true), silent, answered: [...over(true), ...inBrowser] };
}

/**
 * The protocols over which a campaign's servers answer at all. For a plan's own server they are not
 * known beforehand: never answering over a protocol is a result. If the server ever answered over a
 * protocol, a load without an answer before it was made on a cold server and is invalid, whatever
 * its outcome. Otherwise such loads would count if they fail but not if they complete.
 */
export class AnsweredProtocols {
  readonly #answered = new Map<string, Set<WarmProtocol>>();
  readonly #warmed = new Set<string>();

  add({ server, answered, warmed }: Warmth): void {
    this.#answered.set(server, new Set([...(this.#answered.get(server) ?? []), ...answered]));
    if (warmed.length > 0) this.#warmed.add(server);
  }

  /**
   * Returns why a load is invalid because of a cold server. If nothing ever warms a server, all its
   * loads are alike, and the report says so.
   */
  whyCold({ server, silent }: Warmth): string | undefined {
    if (!this.#warmed.has(server)) return undefined;
    const cold = silent.filter((protocol) => this.#answered.get(server)?.has(protocol) === true);
    return cold.length === 0 ? undefined : describeCold(cold);
  }
}
