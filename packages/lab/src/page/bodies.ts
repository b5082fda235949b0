import type { RandomGenerator } from 'pure-rand/types/RandomGenerator';
import { ExitCode, LabError } from '../errors.js';
import { randomBytes } from '../seed.js';
import { GLYPH, trueTypeFont } from './font.js';
import { childrenOf, type Planned } from './layout.js';
import { LARGEST, pngImage, SMALL } from './png.js';
import { requestCount, type PageSpec } from './spec.js';

const LARGEST_STYLE = `display: block; width: ${LARGEST.width}px; height: ${LARGEST.height}px;`;

/** The content of a resource, exactly as long as it was planned. */
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

/** Each style sheet declares its share of the fonts, background images and other sheets; the first one lays the page out. */
function styleSheet(resource: Planned, all: readonly Planned[], host: string, random: RandomGenerator): Buffer {
  const children = childrenOf(resource, all);
  const rules = [
    // No rule may stand before an import.
    ...ofKind(children, 'stylesheet').map((child) => `@import url("${reference(child, resource, host)}");\n`),
    ...ofKind(children, 'font').map(
      (child) =>
        `@font-face { font-family: "${familyOf(child.index)}"; src: url("${reference(child, resource, host)}") format("truetype"); }\n` +
        `.sign-${child.index} { font-family: "${familyOf(child.index)}"; }\n`,
    ),
    ...ofKind(children, 'image').map(
      (child) => `.picture-${child.index} { background: url("${reference(child, resource, host)}") 0 0 / cover; }\n`,
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

/** A script that leaves a mark on the document, and asks for the scripts and images that it is to name. */
function script(resource: Planned, all: readonly Planned[], host: string, random: RandomGenerator): Buffer {
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

/** As a script of the document sees it: relative to the document, not to the script. */
function quoted(child: Planned, host: string): string {
  return `'${fromDocument(child, host)}'`;
}

/** The HTML document: `html_bytes` of it, and nothing else when the page has no resources. */
export function documentBody(spec: PageSpec, all: readonly Planned[], host: string, random: RandomGenerator): Buffer {
  const direct = all.filter(({ discoveredBy }) => discoveredBy === 'document');
  const href = (resource: Planned): string => fromDocument(resource, host);
  const head = [
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width">',
    `<title>${escape(spec.name)}</title>`,
    // Without this a browser asks for /favicon.ico, one request more than the page has.
    '<link rel="icon" href="data:,">',
    ...ofKind(direct, 'stylesheet').map((sheet) => `<link rel="stylesheet" href="${href(sheet)}">`),
    ...ofKind(direct, 'script').map((code) => `<script src="${href(code)}" defer></script>`),
  ];
  const signs = ofKind(all, 'font').map(({ index }) => `<span class="sign sign-${index}">${GLYPH}</span>`);
  const pictures = ofKind(all, 'image').filter(({ discoveredBy }) => discoveredBy === 'stylesheet');
  const html = [
    '<!doctype html>\n<html lang="en">\n<head>',
    ...head,
    '</head>\n<body>',
    `<h1>${escape(spec.name)}</h1>`,
    ...pictures.map(({ index, largest }) => `<div class="picture-${index}" style="${pictureStyle(largest)}"></div>`),
    ...ofKind(direct, 'image')
      .filter(({ largest }) => largest)
      .map((image) => `<img src="${href(image)}" alt="image ${image.index}" style="${LARGEST_STYLE}">`),
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

/** How a style sheet names a resource: both are in a folder of their own below the root of their host. */
function reference(child: Planned, parent: Planned, host: string): string {
  return child.origin === parent.origin ? `../${child.path}` : absolute(child, host);
}

/** Without a scheme, so that a page over clear text stays one. */
function absolute({ origin, path }: Planned, host: string): string {
  return `//${origin === undefined ? host : `${origin}.${host}`}/${path}`;
}

function ofKind(resources: readonly Planned[], kind: Planned['kind']): Planned[] {
  return resources.filter((resource) => resource.kind === kind);
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
      file.path === 'index.html' ? `set html_bytes to ${needed} or more` : "raise its group's bytes",
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
