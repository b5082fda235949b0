import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { JobFile } from '../load/job.js';
import { SCREENS_INDEX } from '../load/screens.js';
import { TRACES, tracesOf } from '../samples/traces.js';
import { html, type Html } from './html.js';

/** Maximum number of pictures per load; beyond that, those shown most briefly are dropped. */
const MAX_PICTURES_PER_LOAD = 40;
/** Maximum size of all picture files of a report; base64 adds a third. */
export const MAX_PICTURE_BYTES = 6_000_000;

/** A screenshot of the page and since when it was shown. */
export interface Frame {
  /** The fragment identifier of its symbol. */
  readonly id: string;
  readonly seconds: number;
}

/** The screenshots of one load. */
export interface Pictures {
  readonly width: number;
  readonly height: number;
  /** In order of time; at least one. */
  readonly frames: readonly Frame[];
}

/** A picture that is embedded once, however often it is shown. */
interface Embedded {
  readonly id: string;
  readonly jpeg: Buffer;
  readonly size: Size;
}

interface Size {
  readonly width: number;
  readonly height: number;
}

const index = z.array(
  z.object({ file: z.string().regex(/^[\w-]+\.jpg$/), seconds: z.number().nonnegative() }),
);

/**
 * The pictures of a report, read from the traces of a campaign. Each different one is kept once,
 * and their total size is bounded.
 */
export class PictureStore {
  readonly #embedded = new Map<string, Embedded>();
  #bytes = 0;
  /** Number of loads whose pictures exceed the size limit. */
  #leftOut = 0;

  constructor(
    private readonly folder: string,
    private readonly mostBytes = MAX_PICTURE_BYTES,
  ) {}

  get leftOut(): number {
    return this.#leftOut;
  }

  /** Returns the numbers of the loads that have pictures. */
  loads(): Set<number> {
    return new Set(
      entriesOf(join(this.folder, TRACES))
        .filter(
          (name) =>
            /^\d{4,}$/.test(name) && entriesOf(this.#screens(Number(name))).includes(SCREENS_INDEX),
        )
        .map(Number),
    );
  }

  /**
   * Returns the pictures of all these loads; undefined if one of them has none that can be read, or
   * if they exceed the size limit.
   */
  ofAll(loads: readonly number[]): Pictures[] | undefined {
    const found = loads.map((load) => this.#read(load));
    const fresh = new Map(
      found
        .flat()
        .filter(({ id }) => !this.#embedded.has(id))
        .map((one) => [one.id, one]),
    );
    const pictures = found.flatMap(([first, ...others]) =>
      first === undefined
        ? []
        : [
            {
              ...first.size,
              frames: [first, ...others].map(({ id, seconds }) => ({ id, seconds })),
            },
          ],
    );
    if (pictures.length < loads.length) return undefined;
    const bytes = [...fresh.values()].reduce((sum, { jpeg }) => sum + jpeg.length, 0);
    if (this.#bytes + bytes > this.mostBytes) {
      this.#leftOut += loads.length;
      return undefined;
    }
    this.#bytes += bytes;
    for (const [id, one] of fresh) this.#embedded.set(id, one);
    return pictures;
  }

  /** Returns the picture's file as a data URL. */
  dataUrl(id: string): string {
    return `data:image/jpeg;base64,${this.#embedded.get(id)?.jpeg.toString('base64') ?? ''}`;
  }

  /**
   * Returns the symbols that drawings refer to; a document needs them once, before the drawings.
   */
  symbols(): Html | undefined {
    if (this.#embedded.size === 0) return undefined;
    const symbols = [...this.#embedded.values()].map(
      ({ id, size: { width, height } }) =>
        html`<symbol id="${id}" viewBox="0 0 ${width} ${height}"
          ><image href="${this.dataUrl(id)}" width="${width}" height="${height}"
        /></symbol>`,
    );
    return html`<svg width="0" height="0" style="position:absolute" aria-hidden="true">
      ${symbols}
    </svg>`;
  }

  #read(load: number): (Embedded & Frame)[] {
    const folder = this.#screens(load);
    const listed = thinned(readIndex(join(folder, SCREENS_INDEX)));
    return listed.flatMap(({ file, seconds }) => {
      const jpeg = readOrNothing(join(folder, file));
      const size = jpeg && jpegSize(jpeg);
      if (jpeg === undefined || size === undefined) return [];
      const id = `picture-${createHash('sha256').update(jpeg).digest('hex').slice(0, 16)}`;
      return [{ id, jpeg, size, seconds }];
    });
  }

  #screens(load: number): string {
    return join(this.folder, tracesOf(load), JobFile.Screens);
  }
}

/** Drops the pictures shown most briefly until few enough remain. The last one stays. */
function thinned<T extends { readonly seconds: number }>(listed: readonly T[]): readonly T[] {
  const kept = [...listed].sort((a, b) => a.seconds - b.seconds);
  while (kept.length > MAX_PICTURES_PER_LOAD) {
    const stays = kept
      .slice(0, -1)
      .map(({ seconds }, at) => (kept[at + 1]?.seconds ?? seconds) - seconds);
    kept.splice(stays.indexOf(Math.min(...stays)), 1);
  }
  return kept;
}

function readIndex(path: string): z.infer<typeof index> {
  try {
    return index.parse(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    // Pictures are optional: a report without some of them is still correct.
    return [];
  }
}

function readOrNothing(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

function entriesOf(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

/**
 * Reads width and height from the frame header of a JPEG file; undefined if there is none (ITU-T
 * T.81, B.2).
 */
export function jpegSize(jpeg: Buffer): Size | undefined {
  if (jpeg.length < 4 || jpeg.readUInt16BE(0) !== 0xffd8) return undefined;
  for (
    let at = 2;
    at + 9 <= jpeg.length && jpeg[at] === 0xff;
    at += 2 + jpeg.readUInt16BE(at + 2)
  ) {
    const marker = jpeg[at + 1] as number;
    // SOF0 to SOF15, except the three markers in between that are not frame headers.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      return { width: jpeg.readUInt16BE(at + 7), height: jpeg.readUInt16BE(at + 5) };
    }
  }
  return undefined;
}
