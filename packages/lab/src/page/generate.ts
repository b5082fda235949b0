import { createHash } from 'node:crypto';
import { uniformFloat64 } from 'pure-rand/distribution/uniformFloat64';
import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { ExitCode, LabError } from '../errors.js';
import { deriveSeed, generator, randomBytes } from '../seed.js';
import { GLYPH, trueTypeFont } from './font.js';
import { pngImage } from './png.js';
import { requestCount, type PageSpec, type ResourceKind } from './spec.js';

/** One file of a page. `path` is relative to the page's folder. */
export interface PageFile {
  readonly path: string;
  readonly kind: 'document' | ResourceKind;
  readonly body: Buffer;
}

/** A generated page: the HTML document first, then its resources. The same specification makes the same bytes. */
export interface Page {
  readonly files: readonly PageFile[];
  readonly manifest: PageManifest;
}

/** What a load of a page has to fetch. Written as `page.json` beside the page's files. */
export interface PageManifest {
  readonly name: string;
  readonly seed: number;
  /** Requests of one load, the document's own included. */
  readonly requests: number;
  /** Bytes of all bodies together. */
  readonly bytes: number;
  readonly files: readonly { path: string; kind: string; bytes: number; sha256: string }[];
}

interface Planned {
  readonly kind: ResourceKind;
  readonly path: string;
  readonly size: number;
  /** The position among the resources of its kind. */
  readonly index: number;
}

/** Makes the page that `spec` describes. */
export function generatePage(spec: PageSpec): Page {
  const planned = plan(spec);
  const resources = planned.map((resource): PageFile => {
    const random = generator(deriveSeed(spec.seed, spec.name, resource.path));
    return { path: resource.path, kind: resource.kind, body: bodyOf(resource, planned, random) };
  });
  const files = [htmlDocument(spec, planned), ...resources];
  return { files, manifest: manifestOf(spec, files) };
}

function plan(spec: PageSpec): Planned[] {
  const seen = new Map<ResourceKind, number>();
  return spec.resources.flatMap((group, position) => {
    const random = generator(deriveSeed(spec.seed, spec.name, 'sizes', position));
    return sizes(group.count, group.total_bytes, random).map((size) => {
      const index = seen.get(group.kind) ?? 0;
      seen.set(group.kind, index + 1);
      return { kind: group.kind, path: pathOf(group.kind, index), size, index };
    });
  });
}

/** Sizes that differ by up to a factor of two and add up to exactly `total`. */
function sizes(count: number, total: number, random: RandomGenerator): number[] {
  const weights = Array.from({ length: count }, () => 2 ** (uniformFloat64(random) - 0.5));
  const sum = weights.reduce((a, b) => a + b, 0);
  const result = weights.map((weight) => Math.floor((total * weight) / sum));
  const rest = total - result.reduce((a, b) => a + b, 0);
  result[0] = (result[0] as number) + rest;
  return result;
}

function pathOf(kind: ResourceKind, index: number): string {
  switch (kind) {
    case 'stylesheet':
      return `css/style-${index}.css`;
    case 'script':
      return `js/script-${index}.js`;
    case 'font':
      return `fonts/font-${index}.ttf`;
    case 'image':
      return `images/image-${index}.png`;
  }
}

function bodyOf(resource: Planned, all: readonly Planned[], random: RandomGenerator): Buffer {
  switch (resource.kind) {
    case 'stylesheet':
      return styleSheet(resource, all, random);
    case 'script':
      return script(resource, random);
    case 'font':
      return trueTypeFont(resource.size, familyOf(resource.index), random);
    case 'image':
      return pngImage(resource.size, random);
  }
}

function familyOf(index: number): string {
  return `Lab Sign ${index}`;
}

/** Each style sheet declares its share of the fonts; the first one lays the page out. */
function styleSheet(resource: Planned, all: readonly Planned[], random: RandomGenerator): Buffer {
  const sheets = all.filter(({ kind }) => kind === 'stylesheet').length;
  const fonts = all.filter(({ kind, index }) => kind === 'font' && index % sheets === resource.index);
  const rules = fonts.map(
    ({ path, index }) =>
      `@font-face { font-family: "${familyOf(index)}"; src: url("../${path}") format("truetype"); }\n` +
      `.sign-${index} { font-family: "${familyOf(index)}"; }\n`,
  );
  if (resource.index === 0) {
    rules.push(
      'body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font-family: sans-serif; }\n',
      '.images { display: flex; flex-wrap: wrap; gap: 8px; }\n',
      'img { width: 120px; height: 80px; border-radius: 6px; }\n',
      '.sign { font-size: 2rem; color: #456; }\n',
    );
  }
  return filled(resource, rules.join(''), '/*', '*/\n', random);
}

/** A script that leaves a mark on the document and asks for nothing. */
function script(resource: Planned, random: RandomGenerator): Buffer {
  const code = `document.documentElement.setAttribute('data-script-${resource.index}', 'ran');\n`;
  return filled(resource, code, '/*', '*/\n', random);
}

function htmlDocument(spec: PageSpec, all: readonly Planned[]): PageFile {
  const of = (kind: ResourceKind): Planned[] => all.filter((resource) => resource.kind === kind);
  const head = [
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width">',
    `<title>${escape(spec.name)}</title>`,
    // Without this a browser asks for /favicon.ico, one request more than the page has.
    '<link rel="icon" href="data:,">',
    ...of('stylesheet').map(({ path }) => `<link rel="stylesheet" href="${path}">`),
    ...of('script').map(({ path }) => `<script src="${path}" defer></script>`),
  ];
  const signs = of('font').map(({ index }) => `<span class="sign sign-${index}">${GLYPH}</span>`);
  const images = of('image').map(({ path, index }) => `<img src="${path}" alt="image ${index}">`);
  const html = [
    '<!doctype html>\n<html lang="en">\n<head>',
    ...head,
    '</head>\n<body>',
    `<h1>${escape(spec.name)}</h1>`,
    `<p>A generated page of ${requestCount(spec)} requests.</p>`,
    `<p>${signs.join(' ')}</p>`,
    `<div class="images">\n${images.join('\n')}\n</div>`,
    '</body>\n</html>\n',
  ].join('\n');
  const random = generator(deriveSeed(spec.seed, spec.name, 'index.html'));
  const path = 'index.html';
  return { path, kind: 'document', body: filled({ path, size: spec.html_bytes }, html, '<!--', '-->\n', random) };
}

/** `content`, and a comment of noise that brings it to exactly the size that was asked for. */
function filled(
  file: { path: string; size: number },
  content: string,
  open: string,
  close: string,
  random: RandomGenerator,
): Buffer {
  const noiseLength = file.size - Buffer.byteLength(content) - open.length - close.length;
  if (noiseLength < 0) {
    const needed = file.size - noiseLength;
    throw new LabError(
      ExitCode.Malformed,
      `${file.path} needs ${needed} bytes for its own content but is to have ${file.size}`,
      file.path === 'index.html' ? `set html_bytes to ${needed} or more` : "raise its group's total_bytes",
    );
  }
  // Base64 holds neither of the comments' ends.
  const noise = randomBytes(Math.ceil((noiseLength * 3) / 4), random)
    .toString('base64')
    .slice(0, noiseLength);
  return Buffer.from(content + open + noise + close);
}

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

function manifestOf(spec: PageSpec, files: readonly PageFile[]): PageManifest {
  return {
    name: spec.name,
    seed: spec.seed,
    requests: files.length,
    bytes: files.reduce((sum, { body }) => sum + body.length, 0),
    files: files.map(({ path, kind, body }) => ({
      path,
      kind,
      bytes: body.length,
      sha256: createHash('sha256').update(body).digest('hex'),
    })),
  };
}
