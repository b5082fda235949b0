import type { Sample } from '../samples/sample.js';
import { REHEARSAL, type ScheduledLoad } from './schedule.js';

/**
 * Reports a campaign's progress on stderr: one line per load, and on a terminal the running load.
 */
export class Progress {
  /**
   * Wall seconds of the loads so far, by profile, page and arm: loads on a slow link say nothing
   * about a fast one.
   */
  readonly #seconds = new Map<string, number[]>();
  /** Loads that may still have to run, by number. */
  readonly #left: Map<number, ScheduledLoad>;
  readonly #onePage: boolean;

  constructor(
    private readonly loads: readonly ScheduledLoad[],
    private readonly out: { write(text: string): unknown; isTTY?: boolean },
  ) {
    this.#left = new Map(loads.map((load) => [load.number, load]));
    this.#onePage = new Set(loads.map(({ page }) => page)).size === 1;
  }

  started(load: ScheduledLoad): void {
    if (this.out.isTTY) this.out.write(`${this.#head(load)} …`);
  }

  finished(load: ScheduledLoad, sample: Sample): void {
    const key = keyOf(load);
    this.#seconds.set(key, [...(this.#seconds.get(key) ?? []), sample.wallSeconds]);
    this.#left.delete(load.number);
    const rest = [...this.#left.values()];
    const remaining =
      rest.length === 0 ? '' : `; ${rest.length} to go, about ${inWords(this.#estimate(rest))}`;
    this.#endLine(`${this.#head(load)} ${describeResult(sample)}${remaining}`);
  }

  /** Reports what invalidates all loads of the round that the last finished load completed. */
  roundIsInvalid(load: ScheduledLoad, why: string): void {
    const place = this.#onePage ? load.profile.name : `${load.profile.name} ${load.page}`;
    this.out.write(`${place} ${describeBlock(load.block)}: all loads INVALID: ${why}\n`);
  }

  /**
   * Skips a load that an earlier sitting has made, or whose profile and page have enough blocks.
   */
  passed(load: ScheduledLoad): void {
    this.#left.delete(load.number);
  }

  interrupted(load: ScheduledLoad): void {
    this.#endLine(`${this.#head(load)} stopped, no sample`);
  }

  #endLine(line: string): void {
    this.out.write(this.out.isTTY ? `\r\u001b[K${line}\n` : `${line}\n`);
  }

  #head(load: ScheduledLoad): string {
    const total = String(this.loads.length);
    const number = String(load.number).padStart(total.length);
    const place = this.#onePage ? load.profile.name : `${load.profile.name} ${load.page}`;
    return `[${number}/${total}] ${place} ${describeBlock(load.block)} ${load.arm.name}:`;
  }

  #estimate(rest: readonly ScheduledLoad[]): number {
    const all = mean([...this.#seconds.values()].flat());
    return rest.reduce((sum, load) => sum + mean(this.#seconds.get(keyOf(load)) ?? [all]), 0);
  }
}

/** Returns "block 3" or "rehearsal". */
export function describeBlock(block: number): string {
  return block === REHEARSAL ? 'rehearsal' : `block ${block}`;
}

/** Returns a sample's time or outcome, and its verdict. */
export function describeResult(sample: Sample): string {
  const time = sample.times.load;
  const result =
    time === undefined ? `${sample.outcome} (${sample.reason ?? ''})` : `${time.toFixed(3)} s`;
  return sample.valid
    ? `${result}, valid`
    : `${result}, INVALID: ${sample.invalidReasons.join('; ')}`;
}

/** Returns a rough duration: "40 s", "3 min", "1 h 20 min". */
export function inWords(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function keyOf(load: ScheduledLoad): string {
  return `${load.profile.name}\n${load.page}\n${load.arm.name}`;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}
