/** Byte ranges that arrive in any order, and how far they reach from the start without a gap. */
export class Contiguous {
  /** The ranges beyond the first gap, in order and disjoint. */
  #beyond: { from: number; to: number }[] = [];
  #held = 0;
  #end: number;

  constructor(start = 0) {
    this.#end = start;
  }

  /** Everything before this offset has arrived. */
  get end(): number {
    return this.#end;
  }

  /** Whether bytes have arrived that must wait for missing ones. */
  get hasGap(): boolean {
    return this.#beyond.length > 0;
  }

  /** Number of bytes that have arrived beyond the first gap. */
  get heldBytes(): number {
    return this.#held;
  }

  /** First received byte beyond the first gap. */
  get gapEnd(): number | undefined {
    return this.#beyond[0]?.from;
  }

  /** Adds the bytes from `from` until before `to`, and returns whether any of them is new. */
  add(from: number, to: number): boolean {
    if (to <= this.#end || from >= to) return false;
    // Bytes mostly come in order, even after a gap.
    const last = this.#beyond.at(-1);
    if (last !== undefined && from >= last.to) {
      if (from === last.to) last.to = to;
      else this.#beyond.push({ from, to });
      this.#held += to - from;
      return true;
    }
    if (this.#beyond.some((range) => range.from <= from && to <= range.to)) return false;
    const joined = { from, to };
    const apart = this.#beyond.filter((range) => {
      if (range.to < joined.from || range.from > joined.to) return true;
      joined.from = Math.min(joined.from, range.from);
      joined.to = Math.max(joined.to, range.to);
      return false;
    });
    if (joined.from <= this.#end) {
      this.#end = Math.max(this.#end, joined.to);
      this.#beyond = apart;
    } else {
      this.#beyond = [...apart, joined].sort((a, b) => a.from - b.from);
    }
    this.#held = this.#beyond.reduce((sum, range) => sum + range.to - range.from, 0);
    return true;
  }
}
