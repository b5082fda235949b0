import * as zlib from 'node:zlib';

const CODINGS = ['br', 'deflate', 'gzip', 'zstd'] as const;
export type Coding = (typeof CODINGS)[number];

/** Above this size the slowest settings take seconds to save a hundredth of the size. */
const LARGE_BYTES = 1 << 20;

/** A body in a content coding. */
export interface Encoded {
  readonly coding: Coding;
  readonly bytes: Buffer;
}

/**
 * Returns the coding that a `content-encoding` names; undefined for none, for several, or for one
 * that the lab cannot encode.
 */
export function codingOf(contentEncoding: string | undefined): Coding | undefined {
  const name = contentEncoding?.trim().toLowerCase().replace(/^x-/, '');
  return CODINGS.find((coding) => coding === name);
}

/**
 * Compresses `body` with `coding`, choosing the setting whose result comes nearest to `wireBytes`:
 * a replay should send about as many bytes as the original. Node.js before 22.15 has no zstd and
 * uses Brotli instead.
 */
export function encode(body: Buffer, coding: Coding, wireBytes: number | undefined): Encoded {
  const available = coding === 'zstd' && zstd() === undefined ? 'br' : coding;
  let best: Buffer | undefined;
  for (const level of levels(available, body.length, wireBytes)) {
    const bytes = compress(body, available, level);
    if (best === undefined || distance(bytes, wireBytes) < distance(best, wireBytes)) best = bytes;
    // Higher settings only make it smaller.
    if (wireBytes !== undefined && bytes.length <= wireBytes) break;
  }
  return { coding: available, bytes: best ?? Buffer.alloc(0) };
}

function distance(bytes: Buffer, wanted: number | undefined): number {
  return Math.abs(bytes.length - (wanted ?? 0));
}

/**
 * Returns settings from weakest to strongest; a single medium one if the original size is unknown.
 */
function levels(coding: Coding, size: number, wireBytes: number | undefined): number[] {
  if (coding === 'br')
    return wireBytes === undefined
      ? [5]
      : size > LARGE_BYTES
        ? [1, 4, 5, 6, 9]
        : [1, 4, 5, 6, 9, 11];
  if (coding === 'zstd')
    return wireBytes === undefined ? [3] : size > LARGE_BYTES ? [1, 3, 6, 12] : [1, 3, 6, 12, 19];
  return wireBytes === undefined ? [6] : [1, 4, 6, 9];
}

function compress(body: Buffer, coding: Coding, level: number): Buffer {
  switch (coding) {
    case 'br':
      return zlib.brotliCompressSync(body, {
        params: { [zlib.constants.BROTLI_PARAM_QUALITY]: level },
      });
    case 'deflate':
      return zlib.deflateSync(body, { level });
    case 'gzip':
      return zlib.gzipSync(body, { level });
    case 'zstd':
      return zstd()?.(body, level) ?? Buffer.alloc(0);
  }
}

/** ZSTD_c_compressionLevel of zstd.h. */
const ZSTD_LEVEL = 100;

function zstd(): ((body: Buffer, level: number) => Buffer) | undefined {
  const made = (zlib as Record<string, unknown>).zstdCompressSync;
  if (typeof made !== 'function') return undefined;
  const zstdCompressSync = made as (
    body: Buffer,
    options: { params: Record<number, number> },
  ) => Buffer;
  return (body, level) => zstdCompressSync(body, { params: { [ZSTD_LEVEL]: level } });
}
