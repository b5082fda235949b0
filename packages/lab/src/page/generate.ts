import { createHash } from 'node:crypto';
import { HOST } from '../run/browser.js';
import { deriveSeed, generator } from '../campaign/seed.js';
import { documentBody, resourceBody } from './bodies.js';
import { layOut } from './layout.js';
import type { PageSpec, ResourceKind } from './spec.js';

/** One file of a page. `path` is relative to the root of its host. */
export interface PageFile {
  readonly path: string;
  readonly kind: 'document' | ResourceKind;
  /** Name of the host below the page's own; undefined for the page's own host. */
  readonly origin?: string;
  readonly body: Buffer;
}

/**
 * A generated page: the HTML document first, then its resources. The same specification gives the
 * same bytes.
 */
export interface Page {
  /** Host of the document; the hosts of all `origin`s are below it. */
  readonly host: string;
  readonly files: readonly PageFile[];
  readonly manifest: PageManifest;
}

/** What a load of a page has to fetch. Written as `page.json` beside the page's files. */
export interface PageManifest {
  readonly name: string;
  readonly seed: number;
  /** Requests of one load, including the document. */
  readonly requests: number;
  /** Bytes of all bodies. */
  readonly bytes: number;
  /** `host` is set for files on other hosts than the page's own. */
  readonly files: readonly {
    path: string;
    host?: string;
    kind: string;
    bytes: number;
    sha256: string;
  }[];
}

/** Generates the page that `spec` describes, served from `host`. */
export function generatePage(spec: PageSpec, host: string = HOST): Page {
  const planned = layOut(spec);
  const random = (path: string): ReturnType<typeof generator> =>
    generator(deriveSeed(spec.seed, spec.name, path));
  const files: PageFile[] = [
    {
      path: 'index.html',
      kind: 'document',
      body: documentBody(spec, planned, host, random('index.html')),
    },
    ...planned.map((resource): PageFile => {
      const { path, kind, origin } = resource;
      const body = resourceBody(resource, planned, host, random(path));
      return { path, kind, ...(origin !== undefined && { origin }), body };
    }),
  ];
  return { host, files, manifest: manifestOf(spec, files, host) };
}

/** Returns the host of a file. */
export function hostOf({ origin }: PageFile, host: string): string {
  return origin === undefined ? host : `${origin}.${host}`;
}

function manifestOf(spec: PageSpec, files: readonly PageFile[], host: string): PageManifest {
  return {
    name: spec.name,
    seed: spec.seed,
    requests: files.length,
    bytes: files.reduce((sum, { body }) => sum + body.length, 0),
    files: files.map((file) => ({
      path: file.path,
      ...(file.origin !== undefined && { host: hostOf(file, host) }),
      kind: file.kind,
      bytes: file.body.length,
      sha256: createHash('sha256').update(file.body).digest('hex'),
    })),
  };
}
