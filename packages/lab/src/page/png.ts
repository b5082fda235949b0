import { crc32, deflateSync } from 'node:zlib';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { randomBytes } from '../campaign/seed.js';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** An image's dimensions in pixels. */
interface Dimensions {
  readonly width: number;
  readonly height: number;
}

export const SMALL: Dimensions = { width: 24, height: 16 };
/**
 * Dimensions of the large image: largest contentful paint counts no more pixels than the image
 * itself has.
 */
export const LARGEST: Dimensions = { width: 960, height: 400 };

const TRUECOLOUR = 2;
/** Bytes of length, type and checksum around each chunk's data. */
const CHUNK_OVERHEAD = 12;

type Colour = readonly [number, number, number];

/**
 * Returns a valid PNG image of exactly `size` bytes: a small gradient, and a private chunk of noise
 * as padding.
 *
 * Decoders skip the noise chunk, so decoding costs the same for each size.
 */
export function pngImage(
  size: number,
  random: RandomGenerator,
  dimensions: Dimensions = SMALL,
): Buffer {
  const pixels = deflateSync(gradient(dimensions, random), { level: 9 });
  const head = [SIGNATURE, chunk('IHDR', header(dimensions)), chunk('IDAT', pixels)];
  const end = chunk('IEND', Buffer.alloc(0));
  const used = Buffer.concat([...head, end]).length + CHUNK_OVERHEAD;
  if (used > size) throw new RangeError(`a PNG image needs at least ${used} bytes, not ${size}`);
  // Lower-case first and second letters: ancillary and private, which decoders must skip.
  return Buffer.concat([...head, chunk('fiLl', randomBytes(size - used, random)), end]);
}

function header({ width, height }: Dimensions): Buffer {
  const data = Buffer.alloc(13);
  data.writeUInt32BE(width, 0);
  data.writeUInt32BE(height, 4);
  data.writeUInt8(8, 8);
  data.writeUInt8(TRUECOLOUR, 9);
  return data;
}

/**
 * Returns rows of pixels, each after filter type 0. Each row of a wide image has one colour, which
 * compresses well.
 */
function gradient({ width, height }: Dimensions, random: RandomGenerator): Buffer {
  const from = colour(random);
  const to = colour(random);
  const rows = Buffer.alloc(height * (1 + 3 * width));
  const across = width === SMALL.width;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const share = ((across ? x / (width - 1) : 0) + y / (height - 1)) / 2;
      for (let part = 0; part < 3; part++) {
        const value = (from[part] as number) * (1 - share) + (to[part] as number) * share;
        rows[y * (1 + 3 * width) + 1 + 3 * x + part] = Math.round(value);
      }
    }
  }
  return rows;
}

function colour(random: RandomGenerator): Colour {
  return [uniformInt(random, 40, 240), uniformInt(random, 40, 240), uniformInt(random, 40, 240)];
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, checksum]);
}
