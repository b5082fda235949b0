import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { randomBytes } from '../campaign/seed.js';

/** The character that each generated font has a glyph for: the first of the private use area. */
export const GLYPH = '\ue000';

const GLYPH_CODE = 0xe000;
const UNITS_PER_EM = 1000;
/** Side of the glyph, a square above the base line. */
const SIDE = 700;
const ADVANCE = 800;

/**
 * Returns a valid TrueType font of exactly `size` bytes with one glyph, and a private table of
 * noise as padding.
 *
 * A browser fetches a font only when a character needs it, and logs an error for an invalid one, so
 * the font has to be valid.
 */
export function trueTypeFont(size: number, family: string, random: RandomGenerator): Buffer {
  const tables: ReadonlyMap<string, Buffer> = new Map<string, Buffer>([
    ['OS/2', os2()],
    ['cmap', characterMap()],
    ['glyf', squareGlyph()],
    ['head', head()],
    ['hhea', horizontalHeader()],
    ['hmtx', words(ADVANCE, 0, ADVANCE, 0)],
    ['loca', words(0, 0, squareGlyph().length / 2)],
    ['maxp', maximumProfile()],
    ['name', names(family)],
    ['post', post()],
  ]);
  const filledWith = (noise: Buffer): Buffer =>
    assemble(new Map<string, Buffer>([...tables, ['zfil', noise]]));
  const used = filledWith(Buffer.alloc(0)).length;
  if (used > size)
    throw new RangeError(`a TrueType font needs at least ${used} bytes, not ${size}`);
  return filledWith(randomBytes(size - used, random));
}

/**
 * Assembles tables, sorted by tag, after their directory; all but the last are padded to four
 * bytes.
 */
function assemble(tables: ReadonlyMap<string, Buffer>): Buffer {
  const power = Math.floor(Math.log2(tables.size));
  const directory: Buffer[] = [
    Buffer.concat([
      longs(0x0001_0000),
      words(tables.size, 16 << power, power, 16 * (tables.size - (1 << power))),
    ]),
  ];
  const bodies: Buffer[] = [];
  let offset = 12 + 16 * tables.size;
  for (const [tag, data] of tables) {
    directory.push(Buffer.from(tag, 'latin1'), longs(checksum(data), offset, data.length));
    const padded = tag === 'zfil' ? data : pad4(data);
    bodies.push(padded);
    offset += padded.length;
  }
  const font = Buffer.concat([...directory, ...bodies]);
  const headOffset = offsetOf('head', tables);
  font.writeUInt32BE((0xb1b0_afba - checksum(font)) >>> 0, headOffset + 8);
  return font;
}

function offsetOf(wanted: string, tables: ReadonlyMap<string, Buffer>): number {
  let offset = 12 + 16 * tables.size;
  for (const [tag, data] of tables) {
    if (tag === wanted) return offset;
    offset += pad4(data).length;
  }
  throw new Error(`no table ${wanted}`);
}

function head(): Buffer {
  return Buffer.concat([
    longs(0x0001_0000, 0x0001_0000, 0, 0x5f0f_3cf5),
    words(0, UNITS_PER_EM),
    Buffer.alloc(16), // created and modified: 0, so that equal seeds make equal fonts
    words(0, 0, SIDE, SIDE, 0, 8, 2, 0, 0),
  ]);
}

function horizontalHeader(): Buffer {
  return Buffer.concat([
    longs(0x0001_0000),
    words(800, -200, 0, ADVANCE, 0, ADVANCE - SIDE, SIDE, 1, 0, 0, 0, 0, 0, 0, 0, 2),
  ]);
}

function maximumProfile(): Buffer {
  const glyphs = 2;
  const points = 4;
  const contours = 1;
  return Buffer.concat([
    longs(0x0001_0000),
    words(glyphs, points, contours, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
  ]);
}

function os2(): Buffer {
  const metrics = words(4, ADVANCE, 400, 5, 0, 650, 600, 0, 75, 650, 600, 0, 350, 50, 250, 0);
  const panose = Buffer.alloc(10);
  const privateUseArea = longs(0, 1 << 28, 0, 0);
  const vendor = Buffer.from('    ', 'latin1');
  const range = words(0x40, GLYPH_CODE, GLYPH_CODE, 800, -200, 0, 800, 200);
  return Buffer.concat([
    metrics,
    panose,
    privateUseArea,
    vendor,
    range,
    longs(1, 0),
    words(500, SIDE, 0, 0x20, 0),
  ]);
}

/** Returns a format 4 map with one character and the final segment that the format requires. */
function characterMap(): Buffer {
  const delta = (1 - GLYPH_CODE) & 0xffff;
  const segments = words(GLYPH_CODE, 0xffff, 0, GLYPH_CODE, 0xffff, delta, 1, 0, 0);
  const subtable = Buffer.concat([words(4, 14 + segments.length, 0, 4, 4, 1, 0), segments]);
  return Buffer.concat([words(0, 1, 3, 1), longs(12), subtable]);
}

function squareGlyph(): Buffer {
  const onCurve = 1;
  const outline = words(1, 0, 0, SIDE, SIDE, 3, 0);
  const flags = Buffer.alloc(4, onCurve);
  const xs = words(0, 0, SIDE, 0);
  const ys = words(0, SIDE, 0, -SIDE);
  return pad4(Buffer.concat([outline, flags, xs, ys]));
}

function names(family: string): Buffer {
  const values = [
    family,
    'Regular',
    `${family} Regular`,
    family,
    'Version 1',
    family.replaceAll(' ', ''),
  ];
  const ids = [1, 2, 3, 4, 5, 6];
  const texts = values.map((value) => Buffer.from(value, 'utf16le').swap16());
  let offset = 0;
  const records = texts.map((text, at) => {
    const record = words(3, 1, 0x409, ids[at] as number, text.length, offset);
    offset += text.length;
    return record;
  });
  return Buffer.concat([words(0, records.length, 6 + 12 * records.length), ...records, ...texts]);
}

function post(): Buffer {
  return Buffer.concat([longs(0x0003_0000, 0), words(-100, 50), longs(0, 0, 0, 0, 0)]);
}

function words(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(2 * values.length);
  values.forEach((value, at) => bytes.writeUInt16BE(value & 0xffff, 2 * at));
  return bytes;
}

function longs(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, at) => bytes.writeUInt32BE(value >>> 0, 4 * at));
  return bytes;
}

function pad4(data: Buffer): Buffer {
  return Buffer.concat([data, Buffer.alloc((4 - (data.length % 4)) % 4)]);
}

/** Returns the sum of a table's big-endian words, as the format defines it. */
function checksum(data: Buffer): number {
  const padded = pad4(data);
  let sum = 0;
  for (let at = 0; at < padded.length; at += 4) sum = (sum + padded.readUInt32BE(at)) >>> 0;
  return sum;
}
