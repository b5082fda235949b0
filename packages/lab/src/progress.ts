import type { Sample } from './sample.js';
import { REHEARSAL, type ScheduledLoad } from './schedule.js';

/** Tells on stderr how a campaign goes: one line for each load, and on a terminal which load is running. */
export class Progress {
  /** Wall seconds of the loads so far, by profile, page and arm: a slow link's loads say nothing of a fast one's. */
  readonly #seconds = new Map<string, number[]>();
  /** What may still have to be run, by number. */
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
    const remaining = rest.length === 0 ? '' : `; ${rest.length} to go, about ${inWords(this.#estimate(rest))}`;
    this.#endLine(`${this.#head(load)} ${resultInWords(sample)}${remaining}`);
  }

  /** What is wrong with all loads of a round, the last of which was the last one finished. */
  roundIsInvalid(load: ScheduledLoad, why: string): void {
    const place = this.#onePage ? load.profile.name : `${load.profile.name} ${load.page}`;
    this.out.write(`${place} ${blockInWords(load.block)}: all loads INVALID: ${why}\n`);
  }

  /** A load that is not made: it was made in an earlier sitting, or its profile and page have enough. */
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
    return `[${number}/${total}] ${place} ${blockInWords(load.block)} ${load.arm.name}:`;
  }

  #estimate(rest: readonly ScheduledLoad[]): number {
    const all = mean([...this.#seconds.values()].flat());
    return rest.reduce((sum, load) => sum + mean(this.#seconds.get(keyOf(load)) ?? [all]), 0);
  }
}

/** "block 3", or "rehearsal". */
export function blockInWords(block: number): string {
  return block === REHEARSAL ? 'rehearsal' : `block ${block}`;
}

/** A sample in some words: its time or its end, and its verdict. */
export function resultInWords(sample: Sample): string {
  const time = sample.times.load;
  const result = time === undefined ? `${sample.outcome} (${sample.reason ?? ''})` : `${time.toFixed(3)} s`;
  return sample.valid ? `${result}, valid` : `${result}, INVALID: ${sample.invalidReasons.join('; ')}`;
}

/** A rough duration: "40 s", "3 min", "1 h 20 min". */
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
