import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { ExitCode, LabError } from '../io/errors.js';
import { randomBytes } from '../campaign/seed.js';
import { GLYPH, trueTypeFont } from './font.js';
import { childrenOf, type Planned } from './layout.js';
import { LARGEST, pngImage, SMALL } from './png.js';
import { requestCount, type PageSpec } from './spec.js';

const LARGEST_STYLE = `display: block; width: ${LARGEST.width}px; height: ${LARGEST.height}px;`;

/** Returns a resource's body of exactly the planned length. */
export function resourceBody(
  resource: Planned,
  all: readonly Planned[],
  host: string,
  random: RandomGenerator,
): Buffer {
  switch (resource.kind) {
    case 'stylesheet':
      return styleSheet(resource, all, host, random);
    case 'script':
      return script(resource, all, host, random);
    case 'font':
      return trueTypeFont(resource.size, familyOf(resource.index), random);
    case 'image':
      return pngImage(resource.size, random, resource.largest ? LARGEST : SMALL);
  }
}

function familyOf(index: number): string {
  return `Lab Sign ${index}`;
}

/**
 * Returns a style sheet with its share of the fonts, background images and imports; the first one
 * also has the layout.
 */
function styleSheet(
  resource: Planned,
  all: readonly Planned[],
  host: string,
  random: RandomGenerator,
): Buffer {
  const children = childrenOf(resource, all);
  const rules = [
    // No rule may precede an import.
    ...ofKind(children, 'stylesheet').map(
      (child) => `@import url("${reference(child, resource, host)}");\n`,
    ),
    ...ofKind(children, 'font').map(
      (child) =>
        `@font-face { font-family: "${familyOf(child.index)}"; src: url("${reference(child, resource, host)}") format("truetype"); }\n` +
        `.sign-${child.index} { font-family: "${familyOf(child.index)}"; }\n`,
    ),
    ...ofKind(children, 'image').map(
      (child) =>
        `.picture-${child.index} { background: url("${reference(child, resource, host)}") 0 0 / cover; }\n`,
    ),
  ];
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

/** Returns a script that marks the document and requests the scripts and images assigned to it. */
function script(
  resource: Planned,
  all: readonly Planned[],
  host: string,
  random: RandomGenerator,
): Buffer {
  const children = childrenOf(resource, all);
  const code = [
    `document.documentElement.setAttribute('data-script-${resource.index}', 'ran');\n`,
    ...ofKind(children, 'script').map(
      (child) =>
        `document.head.append(Object.assign(document.createElement('script'), { src: ${quoted(child, host)} }));\n`,
    ),
    ...ofKind(children, 'image').map((child) => {
      const style = child.largest ? `, style: '${LARGEST_STYLE}'` : '';
      const properties = `{ src: ${quoted(child, host)}, alt: 'image ${child.index}'${style} }`;
      const place = child.largest ? `querySelector('h1').after` : `querySelector('.images').append`;
      return `document.${place}(Object.assign(new Image(), ${properties}));\n`;
    }),
  ];
  return filled(resource, code.join(''), '/*', '*/\n', random);
}

/**
 * Returns the reference as a script of the document resolves it: relative to the document, not to
 * the script.
 */
function quoted(child: Planned, host: string): string {
  return `'${fromDocument(child, host)}'`;
}

/** Returns the HTML document of `html_bytes`; it has no references if the page has no resources. */
export function documentBody(
  spec: PageSpec,
  all: readonly Planned[],
  host: string,
  random: RandomGenerator,
): Buffer {
  const direct = all.filter(({ discoveredBy }) => discoveredBy === 'document');
  const href = (resource: Planned): string => fromDocument(resource, host);
  const head = [
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width">',
    `<title>${escape(spec.name)}</title>`,
    // Without this a browser requests /favicon.ico, an additional request.
    '<link rel="icon" href="data:,">',
    ...ofKind(direct, 'stylesheet').map((sheet) => `<link rel="stylesheet" href="${href(sheet)}">`),
    ...ofKind(direct, 'script').map((code) => `<script src="${href(code)}" defer></script>`),
  ];
  const signs = ofKind(all, 'font').map(
    ({ index }) => `<span class="sign sign-${index}">${GLYPH}</span>`,
  );
  const pictures = ofKind(all, 'image').filter(({ discoveredBy }) => discoveredBy === 'stylesheet');
  const html = [
    '<!doctype html>\n<html lang="en">\n<head>',
    ...head,
    '</head>\n<body>',
    `<h1>${escape(spec.name)}</h1>`,
    ...pictures.map(
      ({ index, largest }) =>
        `<div class="picture-${index}" style="${pictureStyle(largest)}"></div>`,
    ),
    ...ofKind(direct, 'image')
      .filter(({ largest }) => largest)
      .map(
        (image) => `<img src="${href(image)}" alt="image ${image.index}" style="${LARGEST_STYLE}">`,
      ),
    `<p>A generated page of ${requestCount(spec)} requests.</p>`,
    `<p>${signs.join(' ')}</p>`,
    `<div class="images">\n${ofKind(direct, 'image')
      .filter(({ largest }) => !largest)
      .map((image) => `<img src="${href(image)}" alt="image ${image.index}">`)
      .join('\n')}\n</div>`,
    '</body>\n</html>\n',
  ].join('\n');
  return filled({ path: 'index.html', size: spec.html_bytes }, html, '<!--', '-->\n', random);
}

function pictureStyle(largest: boolean): string {
  return largest ? LARGEST_STYLE : 'display: inline-block; width: 120px; height: 80px;';
}

function fromDocument(resource: Planned, host: string): string {
  return resource.origin === undefined ? resource.path : absolute(resource, host);
}

/**
 * Returns how a style sheet references a resource: both are in a folder below the root of their
 * host.
 */
function reference(child: Planned, parent: Planned, host: string): string {
  return child.origin === parent.origin ? `../${child.path}` : absolute(child, host);
}

/** Returns a URL without a scheme, so that a page over http:// stays on it. */
function absolute({ origin, path }: Planned, host: string): string {
  return `//${origin === undefined ? host : `${origin}.${host}`}/${path}`;
}

function ofKind(resources: readonly Planned[], kind: Planned['kind']): Planned[] {
  return resources.filter((resource) => resource.kind === kind);
}

/** Returns `content` with a comment of noise that pads it to exactly the requested size. */
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
      `${file.path} needs ${needed} bytes for its content, but its size is ${file.size}`,
      file.path === 'index.html'
        ? `set html_bytes to ${needed} or more`
        : 'increase the bytes of its group',
    );
  }
  // Base64 contains neither comment terminator.
  const noise = randomBytes(Math.ceil((noiseLength * 3) / 4), random)
    .toString('base64')
    .slice(0, noiseLength);
  return Buffer.from(content + open + noise + close);
}

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
