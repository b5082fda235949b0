import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { createGunzip } from 'node:zlib';

/** Suffix of a compressed file's name. */
export const COMPRESSED = '.gz';

/** Reads the lines of a text file, compressed or not; read errors are thrown by the iteration. */
export async function* readLines(path: string): AsyncGenerator<string, void> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const chunk of bytesOf(path)) {
    const lines = (rest + decoder.write(chunk)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) yield line.endsWith('\r') ? line.slice(0, -1) : line;
  }
  rest += decoder.end();
  if (rest !== '') yield rest;
}

function bytesOf(path: string): NodeJS.ReadableStream {
  const file = createReadStream(path);
  // The iteration over the last stream throws; no other handler is needed.
  return path.endsWith(COMPRESSED) ? pipeline(file, createGunzip(), () => undefined) : file;
}
